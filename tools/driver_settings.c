// The command line before any option: the defaults of nnaot.def.

#include "driver.h"

Settings settings = {
#define OPT_FLAG(field, name, letter, initial, help)                  .field = initial,
#define OPT_INTEGER(field, name, letter, initial, value, help)        .field = initial,
#define OPT_NUMBER(field, name, letter, initial, value, help)         .field = initial,
#define OPT_STRING(field, name, letter, initial, value, help)         .field = initial,
#define OPT_PASSES_FLAG(field, name, letter, initial, help)           .run.field = initial,
#define OPT_PASSES_INTEGER(field, name, letter, initial, value, help) .run.field = initial,
#define OPT_PASSES_STRING(field, name, letter, initial, value, help)  .run.field = initial,
#include "nnaot.def"
};
