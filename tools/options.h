// Command lines of the programs: GNU long options from a table.
//
//     static int64_t ranks = 1;
//     static const Option options[] = {
//         GROUP("Output"),
//         STRING("output", 'o', &output, "FILE", "write the executable here"),
//         INTEGER("ranks", 'g', &ranks, "N", "number of ranks"),
//     };
//
// The initial values of the variables are the defaults, and --help shows them.

#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum OptionKind {
  OPTION_group,   // a heading of --help
  OPTION_flag,    // bool: --name, --name=false
  OPTION_integer, // int64_t
  OPTION_number,  // double
  OPTION_string,  // const char *
  OPTION_list,    // Strings: may be given several times
  OPTION_except,  // the same: each glob of the argument, between commas, with a '!' before it
} OptionKind;

typedef struct Strings {
  const char **at;
  int n;
} Strings;

typedef struct Option {
  OptionKind kind;
  const char *name; // or the heading
  char letter;      // 0: none
  union {
    bool *flag;
    int64_t *integer;
    double *number;
    const char **string;
    Strings *list;
  } to;
  const char *value, *help; // placeholder of the value in --help
  bool needed;              // without a default: it is a mistake to leave it out
} Option;

#define GROUP(heading)                                                                             \
  { .kind = OPTION_group, .name = (heading) }
#define FLAG(name, letter, variable, help)                                                         \
  { OPTION_flag, name, letter, {.flag = variable}, NULL, help, false }
#define INTEGER(name, letter, variable, value, help)                                               \
  { OPTION_integer, name, letter, {.integer = variable}, value, help, false }
#define NEEDED_INTEGER(name, letter, variable, value, help)                                        \
  { OPTION_integer, name, letter, {.integer = variable}, value, help, true }
#define NUMBER(name, letter, variable, value, help)                                                \
  { OPTION_number, name, letter, {.number = variable}, value, help, false }
#define STRING(name, letter, variable, value, help)                                                \
  { OPTION_string, name, letter, {.string = variable}, value, help, false }
#define NEEDED_STRING(name, letter, variable, value, help)                                         \
  { OPTION_string, name, letter, {.string = variable}, value, help, true }
#define LIST(name, letter, variable, value, help)                                                  \
  { OPTION_list, name, letter, {.list = variable}, value, help, false }
#define EXCEPT(name, letter, variable, value, help)                                                \
  { OPTION_except, name, letter, {.list = variable}, value, help, false }

typedef struct Program {
  const char *name;
  const char *usage;   // "nnaot-opt INPUT [--passes=PIPELINE] [-o FILE]"
  const char *summary; // a sentence or two
  const Option *options;
  int n_options;
  const char *const *foreign; // names and letters of another program's options, and NULL; or NULL
  const char *foreign_hint;   // of the error when one of them is given
} Program;

enum { EXIT_USAGE = 2 };

// Fills the variables; *words gets the arguments that are no options.  Returns -1 to go on, or an
// exit status: 0 after --help and --version, EXIT_USAGE after a mistake that it has reported.
int options_parse(const Program *p, int argc, char **argv, Strings *words);

// The exit status after text on standard output, which may be full.
int options_printed(const Program *p);

// Reports needed options that are missing.  Returns EXIT_USAGE if there are any, else 0.
int options_check_needed(const Program *p);

// Whether the command line has the option, `help` too; for options without effect beside others.
bool option_given(const char *name);

// Reports a mistake in the command line, with a pointer to --help.  Returns EXIT_USAGE.
int usage_error(const Program *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
