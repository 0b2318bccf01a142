// Files that are complete or absent: written under a temporary name (rt/temporary_file.h), renamed.
//
//     WholeFile w;
//     if (!whole_file_open(&w, path)) …                  errno has the reason
//     fputs(text, w.f);
//     if (!whole_file_close(&w, true)) …                 the same
//
// A name that stands for a device or a pipe, as /dev/stdout, is written itself.

#ifndef BASE_WHOLE_FILE_H
#define BASE_WHOLE_FILE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct WholeFile {
  FILE *f;
  char *path, *temporary; // temporary: NULL of a device
} WholeFile;

bool whole_file_open(WholeFile *w, const char *path);
// Gives the file its name if `ok` and all of it was written; removes it otherwise.
bool whole_file_close(WholeFile *w, bool ok);
// Whether whole_file_open would succeed; leaves nothing.
bool whole_file_possible(const char *path);

#endif
