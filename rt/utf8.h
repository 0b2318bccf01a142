// Text for terminals and for JSON, from bytes that may be anything: names in models, files, errors.
//
// A terminal obeys control characters, and reverses the text between characters of direction; JSON
// is UTF-8.  These are escaped:
//
//     bytes                 on a terminal    in JSON
//     1b         ESC        \x1b             \u001b
//     c2 9b      U+009B     \xc2\x9b         \u009b
//     e2 80 ae   U+202E     \xe2\x80\xae     \u202e
//     ff         no UTF-8   \xff             \\xff

#ifndef NNRT_UTF8_H
#define NNRT_UTF8_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { UTF8_SHOWN = 8 }; // room for the text of one character, or of one byte

// Returns the length of the character at `s`, which ends with a zero byte, and its code; 0 if the
// bytes are not UTF-8.  The zero byte is a character of length 1.
static inline int nnrt_utf8(const char *s, uint32_t *out_code) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; // shorter forms are not UTF-8
  const unsigned char *c = (const unsigned char *)s;
  int n = c[0] < 0x80   ? 1
          : c[0] < 0xc0 ? 0
          : c[0] < 0xe0 ? 2
          : c[0] < 0xf0 ? 3
          : c[0] < 0xf8 ? 4
                        : 0;
  uint32_t code = n < 2 ? c[0] : c[0] & (0x7fu >> n);
  for (int i = 1; i < n; i++) {
    if ((c[i] & 0xc0) != 0x80) return 0;
    code = code << 6 | (c[i] & 0x3f);
  }
  bool surrogate = code >= 0xd800 && code < 0xe000;
  *out_code = code;
  return code < least[n] || code > 0x10ffff || surrogate ? 0 : n;
}

// Whether a terminal obeys the character instead of showing it: control characters, ends of lines
// and paragraphs, marks, embeddings and isolates of direction.
static inline bool nnrt_utf8_obeyed(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
         code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

// Writes the character at *io_at for a terminal, or one byte of it escaped, and passes it.  Returns
// the length of the text.
static inline int nnrt_utf8_shown(const char **io_at, char out[UTF8_SHOWN]) {
  uint32_t code;
  int n = nnrt_utf8(*io_at, &code);
  if (n == 0 || nnrt_utf8_obeyed(code)) {
    // The bytes that continue the character are no UTF-8 of their own: they are escaped next.
    return snprintf(out, UTF8_SHOWN, "\\x%02x", (unsigned char)*(*io_at)++);
  }
  memcpy(out, *io_at, (size_t)n);
  *io_at += n;
  return n;
}

// The same within a string of JSON.
static inline int nnrt_utf8_in_json(const char **io_at, char out[UTF8_SHOWN]) {
  uint32_t code;
  int n = nnrt_utf8(*io_at, &code);
  if (n == 0) return snprintf(out, UTF8_SHOWN, "\\\\x%02x", (unsigned char)*(*io_at)++);
  *io_at += n;
  if (code == '"' || code == '\\') return snprintf(out, UTF8_SHOWN, "\\%c", (char)code);
  if (nnrt_utf8_obeyed(code)) return snprintf(out, UTF8_SHOWN, "\\u%04x", (unsigned)code);
  memcpy(out, *io_at - n, (size_t)n);
  return n;
}

#endif
