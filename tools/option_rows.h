// The rows of nnaot.def and step.def as a table of options: a file includes this in the table,
// right before the rows.  The variables are those of `settings` (driver.h).

#define OPT_GROUP(name) {.kind = OPTION_group, name},
#define OPT_FLAG(field, name, letter, initial, help)                                               \
  {OPTION_flag, name, letter, {.flag = &settings.field}, NULL, help, false},
#define OPT_INTEGER(field, name, letter, initial, value, help)                                     \
  {OPTION_integer, name, letter, {.integer = &settings.field}, value, help, false},
#define OPT_NUMBER(field, name, letter, initial, value, help)                                      \
  {OPTION_number, name, letter, {.number = &settings.field}, value, help, false},
#define OPT_STRING(field, name, letter, initial, value, help)                                      \
  {OPTION_string, name, letter, {.string = &settings.field}, value, help, false},
#define OPT_LIST(field, name, letter, value, help)                                                 \
  {OPTION_list, name, letter, {.list = &settings.field}, value, help, false},
#define OPT_EXCEPT(field, name, letter, value, help)                                               \
  {OPTION_except, name, letter, {.list = &settings.field}, value, help, false},
#define OPT_PASSES_FLAG(field, name, letter, initial, help)                                        \
  {OPTION_flag, name, letter, {.flag = &settings.run.field}, NULL, help, false},
#define OPT_PASSES_INTEGER(field, name, letter, initial, value, help)                              \
  {OPTION_integer, name, letter, {.integer = &settings.run.field}, value, help, false},
#define OPT_PASSES_STRING(field, name, letter, initial, value, help)                               \
  {OPTION_string, name, letter, {.string = &settings.run.field}, value, help, false},
