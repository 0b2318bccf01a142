// The payload: initial weights, and the model for --export, at the end of the executable.
//
//     | program | zeros up to 4096 k | payload | plans | zeros up to 8 k | NnrtTrailer |
//
// It is mapped, so only the pages that are read take memory.  strip and objcopy cut it off.

#include <string.h>

#include "runtime.h"

typedef struct Tail {
  InFile self;
  NnrtTrailer end;
  bool there, sound;
} Tail;

static bool find_tail(Tail *t, Why *w) {
  *t = (Tail){0};
  if (!nnrt_in_open(&t->self, "/proc/self/exe", w)) return false;
  int64_t bytes = t->self.bytes, size = (int64_t)sizeof t->end;
  if (bytes < size) return true;
  memcpy(&t->end, t->self.at + bytes - size, sizeof t->end);
  t->there = memcmp(t->end.magic, NNRT_PAYLOAD_MAGIC, sizeof t->end.magic) == 0;
  // Sums of damaged numbers could overflow: compare differences.
  t->sound = t->there && t->end.offset >= 0 && t->end.bytes >= 0 && t->end.plans >= 0 &&
             t->end.offset <= bytes - size && t->end.bytes <= bytes - size - t->end.offset &&
             t->end.plans <= bytes - size - t->end.offset - t->end.bytes;
  return true;
}

bool nnrt_payload_open(const NnrtProgram *p, const uint8_t **out, Why *w) {
  Tail t;
  *out = NULL;
  if (p->payload_bytes == 0) return true;
  if (!find_tail(&t, w)) return false;
  // A missing and a damaged payload have different cures.
  if (!t.there)
    return why(w, "the weights at the end of this executable are missing\n"
                  "hint: strip and objcopy remove them; use the file as nnaot wrote it");
  if (!t.sound || t.end.bytes != p->payload_bytes)
    return why(w,
               "the weights at the end of this executable are damaged: %lld bytes at %lld in a "
               "file of %lld, where the program expects %lld",
               (long long)t.end.bytes, (long long)t.end.offset, (long long)t.self.bytes,
               (long long)p->payload_bytes);
  *out = t.self.at + t.end.offset;
  return true;
}

const char *nnrt_payload_plans(int64_t *out_bytes) {
  Tail t;
  Why w;
  *out_bytes = 0;
  if (!find_tail(&t, &w)) return NULL;
  if (!t.sound || t.end.plans == 0) {
    nnrt_in_close(&t.self);
    return NULL;
  }
  *out_bytes = t.end.plans;
  return (const char *)t.self.at + t.end.offset + t.end.bytes;
}
