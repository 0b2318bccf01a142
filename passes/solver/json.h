// JSON from a file, read in one pass and never held: a reader asks for what it expects next.
//
//     for (bool more = json_open(j, '{'); more; more = json_next(j, '}'))
//       if (str_equal(json_key(j), "limit")) limit = json_integer(j); else json_skip(j);
//
// What is no JSON is reported with its line, once; after it every question is answered with "no
// more". What is JSON, and says what nobody asked for, is reported with json_error, and reading
// goes on.

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

// The text must stay; text[n] is '\0'.
void json_text(Json *j, Arena *a, const char *file, const char *text, size_t n, Diag *d);
// The file's text, or NULL.
const char *json_load(Arena *a, const char *path, size_t *out_n, Diag *d);

// After `open` and after each element: whether there is one more, at which j->at stands then.
bool json_open(Json *j, char open);
bool json_next(Json *j, char close);

const char *json_key(Json *j); // with its colon; j->at stands at the value
// A whole number, also as 1e18 or 3.0; what is beyond 64 bits becomes INT64_MAX or INT64_MIN.
int64_t json_integer(Json *j);
double json_number(Json *j);
const char *json_quoted(Json *j); // with its escapes as they are
void json_skip(Json *j);          // any value
bool json_end(Json *j);           // nothing follows

bool json_fail(Json *j, const char *fmt, ...) PRINTF_LIKE(2, 3);
// About what stands at `at`, which j->at was.
void json_error(Json *j, const char *at, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
