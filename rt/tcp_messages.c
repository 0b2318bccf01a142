// Messages between ranks that find each other, and on their control links.
//
//     magic[8]  kind  bytes | body
//
// The reader accepts a kind only with the length that the kind has, and no body beyond the room of
// the reader, which its owner chose: nothing is allocated by a claimed length.

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tcp.h"
#include "utf8.h"

static const char magic[8] = "nnrtcom5";

typedef struct Bounds {
  int64_t least, most;
} Bounds;

static const Bounds bounds[N_MESSAGES] = {
    [MESSAGE_hello] = {sizeof(Hello), sizeof(Hello)},
    [MESSAGE_challenge] = {sizeof(Challenge), sizeof(Challenge)},
    [MESSAGE_prove] = {sizeof(Prove), sizeof(Prove)},
    [MESSAGE_refuse] = {offsetof(Refuse, terms), sizeof(Refuse)},
    [MESSAGE_table] = {sizeof(Table), INT32_MAX}, // its reader has room for the ranks of the job
    [MESSAGE_abort] = {sizeof(Abort), sizeof(Abort)},
    [MESSAGE_ask] = {sizeof(Ask), sizeof(Ask)},
    [MESSAGE_answer] = {sizeof(Answer), sizeof(Answer)},
    [MESSAGE_terms] = {0, REFUSAL_MOST},
};

Head nnrt_message_head(MessageKind kind, int64_t bytes) {
  Head h = {.kind = (int32_t)kind, .bytes = (int32_t)bytes};
  memcpy(h.magic, magic, sizeof magic);
  return h;
}

void nnrt_reader_open(Reader *r, int64_t room) {
  *r = (Reader){.room = room, .body = nnrt_must_alloc((size_t)room)};
}

static bool head_fits(const Reader *r) {
  int32_t kind = r->head.kind, bytes = r->head.bytes;
  return memcmp(r->head.magic, magic, sizeof magic) == 0 && kind >= 0 && kind < N_MESSAGES &&
         bytes >= bounds[kind].least && bytes <= bounds[kind].most && bytes <= r->room;
}

Read nnrt_message_read(int fd, Reader *r) {
  enum { HEAD = sizeof(Head) };
  // The message before this one was taken.
  if (r->have >= HEAD && r->have == HEAD + r->head.bytes) r->have = 0;
  for (;;) {
    bool in_body = r->have >= HEAD;
    int64_t end = in_body ? HEAD + r->head.bytes : HEAD;
    if (r->have == end) return READ_whole;
    char *to = in_body ? r->body + (r->have - HEAD) : (char *)&r->head + r->have;
    errno = 0;
    ssize_t n = recv(fd, to, (size_t)(end - r->have), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return READ_more;
    if (n <= 0) return READ_closed;
    r->have += n;
    // A stranger is noticed by its first bytes: it may never send as many as a head has.
    int64_t seen = r->have < (int64_t)sizeof magic ? r->have : (int64_t)sizeof magic;
    if (memcmp(r->head.magic, magic, (size_t)seen) != 0) return READ_foreign;
    if (r->have == HEAD && !head_fits(r)) return READ_foreign;
  }
}

bool nnrt_message_send(int fd, MessageKind kind, const void *body, int64_t bytes) {
  enum { MOST = sizeof(Head) + sizeof(Refuse) };
  char buffer[MOST];
  Head h = nnrt_message_head(kind, bytes);
  size_t n = sizeof h + (size_t)bytes;
  memcpy(buffer, &h, sizeof h);
  if (bytes > 0) memcpy(buffer + sizeof h, body, (size_t)bytes);
  // One call, so that messages of several threads do not mix.
  ssize_t sent;
  do
    sent = send(fd, buffer, n, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent == (ssize_t)n;
}

void nnrt_text_clean(char *text, size_t size) {
  text[size - 1] = 0;
  // The text may be several, each with a zero byte at its end.
  for (char *at = text; at < text + size;) {
    uint32_t code;
    int n = nnrt_utf8(at, &code);
    if (n == 0 || (code != 0 && nnrt_utf8_obeyed(code))) *at = '?';
    // The bytes that continued a replaced character are none of their own.
    at += *at == '?' ? 1 : n;
  }
}
