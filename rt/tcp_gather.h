// The state of a rank that looks for the others: shared by tcp_gather.c, tcp_accept.c, tcp_dial.c.

#ifndef NNRT_TCP_GATHER_H
#define NNRT_TCP_GATHER_H

#include <poll.h>

#include "tcp.h"

enum {
  PATIENCE_SECONDS = 5,   // then a note says for whom this rank waits
  RESOLVE_SECONDS = 15,   // a container's name may appear late
  ATTEMPT_SECONDS = 10,   // of one connection, on either side
  MOST_VISITORS = 256,    // accepted connections that have not proved to be ranks
  CROWDED_MS = 500,       // then the oldest of so many visitors makes room
  LONGEST_PAUSE_MS = 250, // between attempts
};

// An accepted connection that has not proved to be a rank.
typedef struct Visitor {
  int fd;
  double since;
  Address address;
  char from[ADDRESS_TEXT]; // with its port
  Reader in;
  Hello hello;     // once `greeted`
  bool greeted;    // it has sent one
  bool challenged; // and this rank has answered
  bool refused;    // it runs another program, and may tell its terms
  unsigned char nonce[NONCE];
} Visitor;

// A connection that this rank makes.
typedef struct Dial {
  enum { DIAL_pause, DIAL_connect, DIAL_challenge, DIAL_welcome, DIAL_done } state;
  int to, channel, fd;
  double next; // the end of the pause, or of the attempt
  long pause_ms;
  Address address[MOST_ADDRESSES];
  int n_addresses, at; // the one that is tried
  char last[160];      // the last failure
  Hello hello;
  Reader in;
} Dial;

// Reasons for notes; each is said once.
typedef enum Note {
  NOTE_patience,
  NOTE_stranger,
  NOTE_busy_port,
  NOTE_taken,
  NOTE_refused, // and one more for each Refusal
} Note;

typedef struct Gather {
  TcpWire *t;
  int rank, world, channels;
  const char *at_host; // of rank 0
  int at_port;
  bool one_host;
  TcpPlaces places;
  Key key;
  Terms terms; // of the program
  uint64_t run, program;
  char name[HOST_TEXT]; // of this machine
  double began, until;
  Listeners listeners;
  Visitor *visitor[MOST_VISITORS];
  int n_visitors;
  Dial *dial;
  int n_dials;
  Address reached; // the address at which rank 0 was reached; n = 0: not yet
  Table *table;    // of a rank other than 0 once `has_table`
  int64_t table_bytes;
  bool has_table;
  int64_t *sent; // [world] bytes of the table, at rank 0
  bool *ready;   // [world] at rank 0
  bool said_ready, go;
  unsigned said;  // bit i: Note i
  char last[640]; // the last refusal, for the message at the end of the time
} Gather;

// Whether this note is the first of its kind.
bool nnrt_gather_says(Gather *g, int note);
// "10.88.0.2:29500", as the user gave it.
void nnrt_gather_place(const Gather *g, char *out, size_t size);
// Signs the handshake of a Hello and the challenge that answered it.
enum { SIDE_accepts, SIDE_connects };
void nnrt_gather_proof(const Gather *g, int side, const Hello *h, const unsigned char *nonce,
                       unsigned char out[PROOF]);
// Whether the connection has ended; it may have unread bytes.
bool nnrt_is_closed(int fd);

// tcp_accept.c
void nnrt_accept_new(Gather *g, int listening);
void nnrt_accept_step(Gather *g, int i);  // of a visitor that has sent something
void nnrt_accept_held(Gather *g);         // once there is a table
void nnrt_accept_expire(Gather *g);       // those that are late
double nnrt_accept_next(const Gather *g); // when the next is late
void nnrt_accept_drop(Gather *g, int i);

// tcp_dial.c
void nnrt_dial_open(Gather *g, Dial *d, int to, int channel);
void nnrt_dial_close(Dial *d);
// Continues after an event, or at its time; false: it cannot succeed.
bool nnrt_dial_step(Gather *g, Dial *d, short events, Why *w);
short nnrt_dial_events(const Dial *d);

#endif
