// Command lines from a table: see options.h.  getopt_long does the parsing, as for any GNU program:
// options and words in any order, unique abbreviations, "--" ends the options.

#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "rt/descriptors.h"
#include "rt/nearest.h"

enum { HELP = 1000, VERSION, FIRST }; // values of getopt_long for long options
enum { HELP_COLUMN = 32, HELP_WIDTH = 100 };

static void *allocate(size_t n, size_t size) {
  void *at = calloc(n, size);
  if (!at) abort();
  return at;
}

// Words of the command line may hold any bytes.
static void say_error(const Program *p, const char *fmt, va_list args) PRINTF_LIKE(2, 0);

static void say_error(const Program *p, const char *fmt, va_list args) {
  Arena *a = arena_new();
  fprintf(stderr, "%s: error: %s\n", p->name, str_shown(a, str_vformat(a, fmt, args)));
  arena_free(a);
}

int usage_error(const Program *p, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  say_error(p, fmt, args);
  va_end(args);
  fprintf(stderr, "hint: '%s --help' lists the options\n", p->name);
  return EXIT_USAGE;
}

// For an option of the other program.
static int foreign_error(const Program *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

static int foreign_error(const Program *p, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  say_error(p, fmt, args);
  va_end(args);
  fprintf(stderr, "hint: %s\n", p->foreign_hint);
  return EXIT_USAGE;
}

// -- Help ------------------------------------------------------------------------------------

// The number of characters in the first `n` bytes of UTF-8.
static int letters(const char *text, int n) {
  int count = 0;
  for (int i = 0; i < n; i++)
    count += (text[i] & 0xc0) != 0x80;
  return count;
}

static void print_option(const Option *o) {
  char left[128], text[512], extra[128];
  int n = o->letter ? snprintf(left, sizeof left, "  -%c, --%s", o->letter, o->name)
                    : snprintf(left, sizeof left, "      --%s", o->name);
  if (o->value) n += snprintf(left + n, sizeof left - (size_t)n, " %s", o->value);
  printf("%s", left);
  n = letters(left, n);
  if (n >= HELP_COLUMN) n = printf("\n") - 1;
  printf("%*s", HELP_COLUMN - n, "");
  // " (default 4)" if there is a default worth showing, or " (needed)".
  extra[0] = 0;
  if (o->needed) snprintf(extra, sizeof extra, " (needed)");
  switch (o->needed ? OPTION_group : o->kind) {
  case OPTION_flag:
    if (*o->to.flag) snprintf(extra, sizeof extra, " (default; --%s=false turns it off)", o->name);
    break;
  case OPTION_integer:
    snprintf(extra, sizeof extra, " (default %lld)", (long long)*o->to.integer);
    break;
  case OPTION_number: snprintf(extra, sizeof extra, " (default %g)", *o->to.number); break;
  case OPTION_string:
    if (*o->to.string && **o->to.string)
      snprintf(extra, sizeof extra, " (default %s)", *o->to.string);
    break;
  case OPTION_group:
  case OPTION_except:
  case OPTION_list: break;
  }
  snprintf(text, sizeof text, "%s%s", o->help, extra);
  // Words begin in HELP_COLUMN, and lines break at blanks.
  int column = HELP_COLUMN;
  for (const char *word = text; *word; word += *word == ' ') {
    int bytes = (int)strcspn(word, " "), width = letters(word, bytes);
    if (column > HELP_COLUMN && column + 1 + width > HELP_WIDTH)
      column = printf("\n%*s", HELP_COLUMN, "") - 1;
    else if (column > HELP_COLUMN)
      column += printf(" ");
    column += width;
    printf("%.*s", bytes, word);
    word += bytes;
  }
  printf("\n");
}

static void help(const Program *p) {
  printf("usage: %s\n%s\n", p->usage, p->summary);
  for (int i = 0; i < p->n_options; i++) {
    if (p->options[i].kind == OPTION_group)
      printf("\n%s:\n", p->options[i].name);
    else
      print_option(&p->options[i]);
  }
  printf("\nOther:\n");
  print_option(&(Option){.kind = OPTION_list, .name = "help", .letter = 'h', .help = "show this"});
  print_option(&(Option){.kind = OPTION_list, .name = "version", .help = "show the version"});
}

// -- Parsing ---------------------------------------------------------------------------------

static void push(Strings *to, const char *s) {
  // The capacity is the next power of two, so it is full at powers of two.
  if ((to->n & (to->n - 1)) == 0) {
    const char **grown = allocate((size_t)(to->n ? 2 * to->n : 1), sizeof *grown);
    if (to->n) memcpy(grown, to->at, (size_t)to->n * sizeof *grown);
    free(to->at);
    to->at = grown;
  }
  to->at[to->n++] = s;
}

// Stores `text` (NULL: a flag without a value) in the variable of the option.
static int set(const Program *p, const Option *o, const char *text) {
  char *end = NULL;
  errno = 0;
  switch (o->kind) {
  case OPTION_flag:
    if (!text || !strcmp(text, "true") || !strcmp(text, "1"))
      *o->to.flag = true;
    else if (!strcmp(text, "false") || !strcmp(text, "0"))
      *o->to.flag = false;
    else
      return usage_error(p, "--%s wants true or false, not '%s'", o->name, text);
    return -1;
  case OPTION_integer:
    *o->to.integer = strtoll(text, &end, 10);
    if (!*text || *end || errno)
      return usage_error(p, "--%s wants an integer, not '%s'", o->name, text);
    return -1;
  case OPTION_number:
    *o->to.number = strtod(text, &end);
    if (!*text || *end) return usage_error(p, "--%s wants a number, not '%s'", o->name, text);
    return -1;
  case OPTION_string: *o->to.string = text; return -1;
  case OPTION_list: push(o->to.list, text); return -1;
  // These strings live until the end of the program, as the lists do.
  case OPTION_except:
    for (const char *at = text; *at; at += strspn(at, ",")) {
      int n = (int)strcspn(at, ",");
      char *except = malloc((size_t)n + 2);
      if (!except) abort();
      snprintf(except, (size_t)n + 2, "!%.*s", n, at);
      push(o->to.list, except);
      at += n;
    }
    return -1;
  case OPTION_group: break;
  }
  return -1;
}

static Strings given; // names

bool option_given(const char *name) {
  for (int i = 0; i < given.n; i++)
    if (!strcmp(given.at[i], name)) return true;
  return false;
}

// Whether the word is an option of the other program, with or without a value.
static bool is_foreign(const Program *p, const char *word) {
  const char *name = word + strspn(word, "-");
  size_t n = strcspn(name, "=");
  for (const char *const *f = p->foreign; n && f && *f; f++)
    if (strlen(*f) == n && !strncmp(*f, name, n)) return true;
  return false;
}

// Reports an error of getopt_long in `word`: `c` is its '?' or ':', and optopt the option, if
// known.
static int mistake(const Program *p, int c, const char *word) {
  char letter[] = {'-', (char)optopt, 0};
  bool is_long = !optopt || optopt >= HELP; // a letter may stand in the middle of a word
  const char *name = is_long ? word : letter;
  int n = is_long ? (int)strcspn(word, "=") : 2, n_alike = 0;
  size_t length = is_long ? (size_t)n - 2 : 0; // without --

  // A known option with a missing or superfluous value.
  if (c == ':') return usage_error(p, "%.*s wants a value", n, name);
  if (is_long && optopt) return usage_error(p, "%.*s takes no value", n, name);
  if (is_foreign(p, name)) return foreign_error(p, "there is no option %.*s", n, name);
  // An abbreviation is ambiguous if several options begin with it.
  for (int i = 0; is_long && i < p->n_options; i++)
    n_alike += p->options[i].kind != OPTION_group && !strncmp(p->options[i].name, word + 2, length);
  if (n_alike > 1) return usage_error(p, "%.*s may be several options", n, name);
  if (!is_long) return usage_error(p, "there is no option %.*s", n, name);
  // Suggest the nearest name, of this program or of the foreign one.
  NnrtNearest near = {0};
  for (int i = 0; i < p->n_options; i++)
    if (p->options[i].kind != OPTION_group)
      nnrt_nearest(&near, word + 2, length, p->options[i].name);
  NnrtNearest other = {0};
  for (const char *const *f = p->foreign; f && *f; f++)
    if ((*f)[1]) nnrt_nearest(&other, word + 2, length, *f);
  if (other.name && (!near.name || other.distance < near.distance))
    return foreign_error(p, "there is no option %.*s; did you mean --%s?", n, name, other.name);
  if (near.name)
    return usage_error(p, "there is no option %.*s; did you mean --%s?", n, name, near.name);
  return usage_error(p, "there is no option %.*s", n, name);
}

int options_parse(const Program *p, int argc, char **argv, Strings *words) {
  // Before any file is opened; a message needs none of them.
  if (!nnrt_descriptors_open()) return EXIT_FAILURE;
  // The tables of getopt_long.
  struct option *long_options = allocate((size_t)p->n_options + 3, sizeof *long_options);
  struct option *to = long_options;
  char *short_options = allocate((size_t)p->n_options * 2 + 5, 1), *letter = short_options;
  *letter++ = ':'; // a missing value is distinct from an unknown option
  *letter++ = 'h';
  *to++ = (struct option){"help", no_argument, NULL, HELP};
  *to++ = (struct option){"version", no_argument, NULL, VERSION};
  for (int i = 0; i < p->n_options; i++) {
    const Option *o = &p->options[i];
    if (o->kind == OPTION_group) continue;
    int argument = o->kind == OPTION_flag ? optional_argument : required_argument;
    *to++ = (struct option){o->name, argument, NULL, FIRST + i};
    if (!o->letter) continue;
    *letter++ = o->letter;
    if (argument == required_argument) *letter++ = ':';
  }

  int status = -1;
  *words = (Strings){0};
  // getopt_long keeps its state in globals; its own messages are off.
  optind = 1;
  opterr = 0;
  while (status < 0) {
    int c = getopt_long(argc, argv, short_options, long_options, NULL);
    if (c == -1) break;
    if (c == 'h' || c == HELP) {
      help(p);
      push(&given, "help");
      status = options_printed(p);
    } else if (c == VERSION) {
      printf("%s %s\n", p->name, NNAOT_VERSION);
      status = options_printed(p);
    } else if (c == '?' || c == ':') {
      status = mistake(p, c, argv[optind - 1]);
    } else {
      // A letter is that of an option, which getopt_long knows.
      const Option *o = c >= FIRST ? &p->options[c - FIRST] : NULL;
      for (int i = 0; !o && i < p->n_options; i++)
        if (p->options[i].letter == c) o = &p->options[i];
      // An option of the other program is not an abbreviation of ours.
      const char *word = argv[optind - 1] == optarg ? argv[optind - 2] : argv[optind - 1];
      bool exact = !strncmp(word, "--", 2) && !strncmp(word + 2, o->name, strlen(o->name));
      push(&given, o->name);
      status = c >= FIRST && !exact && is_foreign(p, word)
                   ? foreign_error(p, "there is no option %.*s", (int)strcspn(word, "="), word)
                   : set(p, o, optarg);
    }
  }
  // getopt_long has moved all arguments that are no options to the end.
  while (optind < argc)
    push(words, argv[optind++]);
  free(long_options);
  free(short_options);
  return status;
}

int options_printed(const Program *p) {
  if (!fflush(stdout) && !ferror(stdout)) return EXIT_SUCCESS;
  fprintf(stderr, "%s: cannot write to standard output: %s\n", p->name, strerror(errno));
  return EXIT_FAILURE;
}

int options_check_needed(const Program *p) {
  int status = 0;
  for (int i = 0; i < p->n_options; i++)
    if (p->options[i].needed && !option_given(p->options[i].name))
      status = usage_error(p, "--%s %s is needed", p->options[i].name, p->options[i].value);
  return status;
}
