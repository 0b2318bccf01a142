// Regular expressions of RE2, for strings that are known at compile time.

#ifndef FRONTEND_ONNX_REGEX_H
#define FRONTEND_ONNX_REGEX_H

#include <stdbool.h>

#include "base/arena.h"

typedef struct Regex Regex;

// Returns NULL, and the reason, for an expression that is malformed or of an unsupported form:
// flags, Unicode classes, and repetitions that multiply to more than 65,536 steps.
const Regex *regex_new(Arena *a, const char *pattern, const char **why);
// Whether all of the text matches.
bool regex_matches(const Regex *r, Arena *a, const char *text);

#endif
