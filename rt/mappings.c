// The mapped file at an address, for signal handlers; see signal_safe.h.
//
//     7f3c18200000-7f3c18228000 r--p 00001000 08:01 1835 /usr/lib/x86_64-linux-gnu/libc.so.6
//     begin        end               offset              path
//
// A file is mapped in several pieces, so the address of its first byte comes from the first of its
// lines, which are next to each other.

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "signal_safe.h"

typedef struct Lines {
  int fd;
  char text[1024];
  ssize_t n, at;
} Lines;

// Reads a line, cut off if it is longer than `out`; false at the end.
static bool next_line(Lines *l, char *out, size_t size) {
  for (size_t n = 0;;) {
    if (l->at == l->n) {
      l->at = 0;
      l->n = read(l->fd, l->text, sizeof l->text);
      if (l->n <= 0) return false;
    }
    char c = l->text[l->at++];
    if (c == '\n') {
      out[n] = 0;
      return true;
    }
    if (n < size - 1) out[n++] = c;
  }
}

// Takes a number in hexadecimal digits, and the character after it.
static uintptr_t take_hex(const char **at) {
  uintptr_t x = 0;
  for (; **at; ++*at) {
    char c = **at;
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    x = x * 16 + (uintptr_t)digit;
  }
  if (**at) ++*at;
  return x;
}

// Skips a word and the spaces after it.
static const char *skip_word(const char *at) {
  at += strcspn(at, " ");
  return at + strspn(at, " ");
}

static void copy(char *out, size_t size, const char *from) {
  size_t n = strnlen(from, size - 1);
  memcpy(out, from, n);
  out[n] = 0;
}

static bool is_this_program(const char *path) {
  char own[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
  if (n <= 0) return false;
  own[n] = 0;
  return strcmp(own, path) == 0;
}

bool nnrt_mapping_at(uintptr_t at, Mapping *out) {
  Lines l = {.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
  char line[PATH_MAX + 128];
  bool found = false;
  *out = (Mapping){0};
  if (l.fd < 0) return false;
  while (!found && next_line(&l, line, sizeof line)) {
    const char *rest = line;
    uintptr_t begin = take_hex(&rest), end = take_hex(&rest);
    rest = skip_word(rest);
    uintptr_t offset = take_hex(&rest);
    rest = skip_word(skip_word(rest)); // the device and the inode
    // The first of several lines of a file.
    if (!*rest || strncmp(out->path, rest, sizeof out->path - 1) != 0) {
      out->file = begin - offset;
      copy(out->path, sizeof out->path, rest);
    }
    out->begin = begin;
    out->end = end;
    found = begin <= at && at < end;
  }
  close(l.fd);
  if (found) out->is_this_program = is_this_program(out->path);
  return found;
}
