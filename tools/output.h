// What programs write besides executables.

#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include "base/diag.h"

// Writes the file, or standard output when it is '-'.  Nothing half-written is left under the name:
// a temporary file beside it is renamed.
bool output_write(const char *path, const char *text, Diag *d);
bool output_write_bytes(const char *path, const void *bytes, int64_t n, Diag *d);
// Whether standard output took all that was printed.
bool output_flush(Diag *d);
// Whether output_write could, so that nobody works for nothing.
bool output_writable(const char *path, Diag *d);

// A file that a program reads or writes, and where its name was said: "--summary", or "the model".
typedef struct UsedFile {
  const char *said, *path; // NULL: none
  bool is_read;
} UsedFile;

// Whether each has what it is to write for itself: no file is read as well, or written twice.
bool outputs_apart(const UsedFile *files, int n, Diag *d);

const char *json_string(Arena *a, const char *s);

#endif
