// Writing of files other than executables.

#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include "base/diag.h"

// Writes the file, or standard output if it is '-'.  A temporary file beside it is renamed, so that
// the name never has a partial file.
bool output_write(const char *path, const char *text, Diag *d);
bool output_write_bytes(const char *path, const void *bytes, int64_t n, Diag *d);
// Whether standard output took all printed text.
bool output_flush(Diag *d);
// Whether output_write can write the file, known before the work for its contents.
bool output_writable(const char *path, Diag *d);

// A file that a program reads or writes, and the source of its name: "--summary", or "the model".
typedef struct UsedFile {
  const char *name, *path; // NULL: none
  bool is_read;
} UsedFile;

// Checks that no written file is also read, or written twice.
bool outputs_apart(const UsedFile *files, int n, Diag *d);

const char *json_string(Arena *a, const char *s);

#endif
