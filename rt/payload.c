// The payload: initial weights, and the model for --export, at the end of the executable.
//
//     | program | zeros up to 4096 k | payload | zeros up to 8 k | NnrtTrailer |
//
// It is mapped, so only what is read of it takes memory.  strip and objcopy cut it off.

#include <string.h>

#include "runtime.h"

bool nnrt_payload_open(const NnrtProgram *p, const uint8_t **out, Why *w) {
  InFile self;
  NnrtTrailer end;
  *out = NULL;
  if (p->payload_bytes == 0) return true;
  if (!nnrt_in_open(&self, "/proc/self/exe", w)) return false;
  if (self.bytes < (int64_t)sizeof end)
    return why(w, "the weights at the end of this executable are missing");
  memcpy(&end, self.at + self.bytes - sizeof end, sizeof end);
  if (memcmp(end.magic, NNRT_PAYLOAD_MAGIC, sizeof end.magic) != 0)
    return why(w, "the weights at the end of this executable are missing\n"
                  "hint: strip and objcopy cut them off; use the file as nnaot wrote it");
  if (end.offset < 0 || end.bytes != p->payload_bytes || end.offset > self.bytes ||
      end.bytes > self.bytes - end.offset)
    return why(w,
               "the weights at the end of this executable are damaged: %lld bytes at %lld in a "
               "file of %lld, where the program expects %lld",
               (long long)end.bytes, (long long)end.offset, (long long)self.bytes,
               (long long)p->payload_bytes);
  *out = self.at + end.offset;
  return true;
}
