// Ranks over TCP: the parts of the socket wire (comm_tcp.c).
//
//     tcp_addresses.c  names, addresses, interfaces, ports; sockets that listen
//     tcp_key.c        the secret of the job, and proofs by HMAC
//     tcp_messages.c   messages with a bounded length
//     tcp_gather.c     the ranks find each other: one poll loop over all connections
//     tcp_accept.c     connections that come in, and the checks of a Hello
//     tcp_dial.c       connections that this rank makes
//     comm_tcp.c       exchanges between connected ranks, and the end of a job
//
// README.md has the protocol under "Gathering over TCP".

#ifndef NNRT_TCP_H
#define NNRT_TCP_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "comm.h"

// ---- tcp_addresses.c

enum { ADDRESS_TEXT = 64, HOST_TEXT = 64, MOST_ADDRESSES = 8 };

typedef struct Address {
  struct sockaddr_storage at;
  socklen_t n;
} Address;

// Returns the number of addresses of `host`, a name or a number with or without brackets; 0: none,
// and *out_error is getaddrinfo's.
int nnrt_address_resolve(const char *host, int port, Address out[MOST_ADDRESSES], int *out_error);
// Of a number only: false for a name.
bool nnrt_address_parse(const char *text, int port, Address *out);
// 10.88.0.2 or fd77::1; with a port 10.88.0.2:29500 or [fd77::1]:29500.
void nnrt_address_text(const Address *a, char out[ADDRESS_TEXT]);
void nnrt_address_text_port(const Address *a, char out[ADDRESS_TEXT]);
bool nnrt_address_is_loopback(const Address *a);
void nnrt_address_set_port(Address *a, int port);

// The addresses that this rank may use, from the environment.
typedef struct TcpPlaces {
  const char *said_by;       // the variable that selected the interface; NULL: none is selected
  Address interface[2];      // IPv4 and IPv6
  int n_interface;           // 0: the kernel selects
  int least_port, most_port; // of NNRT_PORT_RANGE; 0: the kernel selects
} TcpPlaces;
bool nnrt_places_read(TcpPlaces *p, Why *w);

// Sockets that listen, nonblocking, all at one port.
typedef struct Listeners {
  int fd[MOST_ADDRESSES + 2];
  int n, port;
  bool open_to_others; // at an address other than loopback
} Listeners;
// Listens at these addresses, of which those of other machines are skipped; with n = 0 at all
// addresses of this machine.
bool nnrt_listen(Listeners *l, const Address *a, int n, int port, Why *w);
// The same at a free port of the range, if there is one.
bool nnrt_listen_in_range(Listeners *l, const Address *a, int n, const TcpPlaces *p, Why *w);
void nnrt_listeners_close(Listeners *l);

// ---- tcp_key.c

enum { NONCE = 32, PROOF = 32 };

typedef struct Key {
  int n; // 0: there is none
  char *bytes;
  void *library; // libcrypto
  const void *(*sha256)(void);
  unsigned char *(*hmac)(const void *kind, const void *key, int n_key, const unsigned char *data,
                         size_t n, unsigned char *out, unsigned *out_n);
  int (*differ)(const void *a, const void *b, size_t n); // in constant time
} Key;
// Reads the job's key from the environment, if one is given.
bool nnrt_key_read(Key *k, Why *w);
void nnrt_key_free(Key *k);
void nnrt_key_sign(const Key *k, const void *data, size_t n, unsigned char out[PROOF]);
bool nnrt_key_fits(const Key *k, const unsigned char a[PROOF], const unsigned char b[PROOF]);
void nnrt_draw(void *out, size_t n); // random bytes; ends the job if the kernel has none

// ---- tcp_messages.c

// HELLO, CHALLENGE, PROVE and WELCOME or REFUSE open a connection; the others are on control links.
typedef enum MessageKind {
  MESSAGE_hello,
  MESSAGE_challenge,
  MESSAGE_prove,
  MESSAGE_welcome,
  MESSAGE_refuse,
  MESSAGE_table,
  MESSAGE_ready,
  MESSAGE_go,
  MESSAGE_abort,
  MESSAGE_bye,
  MESSAGE_ask,
  MESSAGE_answer,
  MESSAGE_terms, // of a rank that was refused for its program: its answer to REFUSE
  N_MESSAGES
} MessageKind;

enum { CONTROL = -1, JOB_ID = 16, REFUSAL_MOST = 2048, ABORT_TEXT = 1024 };

typedef struct Hello {
  int32_t world, rank, to; // the rank that connects, and the one that it means to reach
  int32_t channel;         // CONTROL or a channel
  int32_t port;            // of the rank's own listeners; on control links
  int32_t keyed;
  uint64_t run, program;
  unsigned char job[JOB_ID]; // drawn by rank 0; of channels
  unsigned char nonce[NONCE];
  char host[HOST_TEXT];       // the name of the machine, for messages
  char address[ADDRESS_TEXT]; // of its selected interface, or empty
} Hello;

typedef struct Challenge {
  unsigned char nonce[NONCE];
  unsigned char proof[PROOF]; // without a key Hello's nonce
} Challenge;

typedef struct Prove {
  unsigned char proof[PROOF]; // without a key Challenge's nonce
} Prove;

typedef enum Refusal {
  REFUSED_run,     // another job, or another rank than was meant: try again
  REFUSED_taken,   // that rank is here already: try again
  REFUSED_world,   // all others end the rank that is refused
  REFUSED_key,     // one side has none
  REFUSED_proof,   // another key
  REFUSED_program, // the terms of the program follow
  N_REFUSALS
} Refusal;

typedef struct Refuse {
  int32_t reason, world;
  char terms[REFUSAL_MOST]; // as many as were sent
} Refuse;

// A rank in the table that rank 0 sends to all.
typedef struct Entry {
  char host[HOST_TEXT], address[ADDRESS_TEXT];
  int32_t port;
} Entry;

typedef struct Table {
  unsigned char job[JOB_ID];
  Entry entry[]; // [world]
} Table;

typedef struct Abort {
  int32_t rank; // the first that failed
  int32_t quit; // a SIGQUIT of that rank: all print their stacks
  char text[ABORT_TEXT];
} Abort;

// A question to a rank that others wait for, and its answer: its activity.
typedef struct Ask {
  int32_t from, to, lane, number;
} Ask;

typedef struct Answer {
  int32_t from, to, number; // of the question
  Standing standing;
} Answer;

typedef struct Head {
  char magic[8];
  int32_t kind, bytes; // of the body that follows
} Head;

// Collects one message of a nonblocking socket.
typedef struct Reader {
  Head head;
  int64_t have; // bytes of head and body
  char *body;
  int64_t room; // no longer body is read
} Reader;

typedef enum Read { READ_more, READ_whole, READ_closed, READ_foreign } Read;

void nnrt_reader_open(Reader *r, int64_t room);
// The body stays valid until the next call; kind and length are those of a message that exists.
Read nnrt_message_read(int fd, Reader *r);
// Sends a short message at once: false if the socket does not take all of it.
bool nnrt_message_send(int fd, MessageKind kind, const void *body, int64_t bytes);
Head nnrt_message_head(MessageKind kind, int64_t bytes);
// Ends a text within its field, and replaces characters that a terminal cannot show; zeros stay.
void nnrt_text_clean(char *text, size_t size);

// ---- comm_tcp.c, tcp_gather.c

// Used by the thread of a lane; others ring the bell.
typedef struct TcpLane {
  struct pollfd *poll; // the links of busy pairs, the control links, and the bell
  int bell;            // an eventfd: a job was put
  double looked_us;    // for machines that do not answer
} TcpLane;

typedef struct TcpWire {
  Wire wire;
  const NnrtRun *run;
  int *link; // [channels, world], -1: not connected
  TcpLane lane[RECORD_LANES];
  int *control;            // [world]: of rank 0 to all others, of others to rank 0; else -1
  Reader *reader;          // [world], of control links
  char (*host)[HOST_TEXT]; // [world] names of machines, for messages
  int watch;               // an epoll set of all control links
  pthread_mutex_t watching;
  Abort told;             // the first failure that this rank was told of; its text is empty before
  pthread_mutex_t asking; // one question at a time
  atomic_int asked;       // the number of the last
  pthread_mutex_t answered;
  Answer answer;      // the last that came
  double heard_us;    // when the last message came on a control link
  atomic_bool failed; // a control link or a channel has: no answer is waited for
} TcpWire;

int *nnrt_link_to(const TcpWire *t, int channel, int rank);
// Connects to all ranks; on failure the others are told.
bool nnrt_tcp_gather(TcpWire *t, Why *w);
// Writes "rank 2 on host1".
void nnrt_tcp_who(const TcpWire *t, int rank, char *out, size_t size);
void nnrt_tcp_set_options(int fd, bool control);
// Tells all ranks that can be reached of a failure.
void nnrt_tcp_tell(TcpWire *t, int rank, const char *text);

#endif
