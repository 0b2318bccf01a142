// A streaming JSON reader: the caller asks for the next expected value, and no tree is built.
//
//     for (bool more = json_open(j, '{'); more; more = json_next(j, '}'))
//       if (str_equal(json_key(j), "limit")) limit = json_integer(j); else json_skip(j);
//
// A syntax error is reported with its line, once; afterwards every loop ends.  Callers report
// unexpected content of valid JSON with json_error, and reading continues.

#ifndef SOLVER_JSON_H
#define SOLVER_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/diag.h"

typedef struct Json {
  Arena *arena;
  const char *file;
  const char *start, *at, *end; // *end is '\0'
  Diag *diag;
  bool failed;
} Json;

// The text must outlive the reader; text[n] is '\0'.
void json_text(Json *j, Arena *a, const char *file, const char *text, size_t n, Diag *d);
// The file's text, or NULL.
const char *json_load(Arena *a, const char *path, size_t *out_n, Diag *d);

// Whether there is a first element after `open`, or one more after the last; j->at is its start.
bool json_open(Json *j, char open);
bool json_next(Json *j, char close);

const char *json_key(Json *j); // reads the colon, too; j->at is the start of the value
// An integer, also as 1e18 or 3.0; beyond 64 bits it saturates to INT64_MAX or INT64_MIN.
int64_t json_integer(Json *j);
double json_number(Json *j);
const char *json_quoted(Json *j); // escapes are not decoded
void json_skip(Json *j);          // any value
bool json_end(Json *j);           // whether the text ends here

bool json_fail(Json *j, const char *fmt, ...) PRINTF_LIKE(2, 3);
// Reports an error at `at`, an earlier j->at.
void json_error(Json *j, const char *at, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
