// Commands, and the state of a build from sources: for build.c and the targets.
//
// CMakeLists.txt defines paths of the build: NNAOT_CC, NNAOT_RT_HEADERS and so on.  An installed
// nnaot finds its runtime beside itself.

#ifndef BACKEND_BUILD_H
#define BACKEND_BUILD_H

#include "backend.h"
#include "base/vec.h"

typedef struct Command {
  Arena *arena;
  Vec(char *) word;
  const char *tool;            // its kind: "C compiler"
  const char *variable;        // the environment variable that overrides it: "CC"
  const char *source, *object; // that it compiles; NULL: it links
} Command;

typedef struct Commands {
  Vec(Command) at;
} Commands;

// The C files of a program beside program.c.
typedef struct Sources {
  bool divided; // into program.h, calls_0.c, …, kernels_0.c, …: see pieces.c
  int n_calls, n_kernels;
} Sources;

typedef struct Build {
  const Module *m;
  const BackendOptions *o;
  Arena *arena;
  Diag *d;
  bool installed;                  // else in the build tree
  const char *headers, *libraries; // folders of the runtime
  const char *dir;                 // folder of the sources
  Sources sources;
  const char *common_key; // of cache.c: NULL: unknown so far
} Build;

// -- command.c

void command_add(Command *c, const char *word);
void command_adds(Command *c, const char *words); // several, between blanks
const char *command_text(const Command *c);       // as a shell reads it
// Runs it in the folder of the sources, its output appended to the file log there.  `environment`:
// "NAME=VALUE" …, NULL at the end, or NULL.  Returns false, having reported it, if it could not
// run.
bool command_start(Build *b, Command *c, const char *const *environment, int *out_status);
// Runs all but the last, as many at a time as the options allow, and then the last, which links
// them.  Reports the first failure and ends the commands that still run.
bool commands_run(Build *b, Commands *all);

// -- processors.c

int processors_available(void);

// -- search_path.c

// The executable's RUNPATH, with the n folders of its libraries on this machine.  With `d`, warns
// of each that is left out because other users may change it.
const char *search_path(Arena *a, const BackendOptions *o, const char *const *folder, int n,
                        Diag *d);

// Returns the folder at or above `folder` that others may change, or NULL.  Writes the reason to
// *why.
const char *folder_of_others(Arena *a, const char *folder, const char **why);

// -- cache.c

// Makes the key of the command's object; false: the object is not cached.
bool cache_key(Build *b, const Command *c, StrBuf *key);
// Writes the object if there is an entry with this key.
bool cache_take(Build *b, const Command *c, const StrBuf *key);
void cache_put(Build *b, const Command *c, const StrBuf *key);

// -- build.c

bool is_file(const char *path);
// Finds the runtime.  Returns false, having reported it, if there is none.
bool build_find_runtime(Build *b);
// The C compiler, $CC, the one nnaot was built with, or cc, with the options of all programs.  For
// another kind of processor: $CC_aarch64, or aarch64-linux-gnu-gcc.
Command build_c_command(Build *b);
// Returns that compiler, and the variable that overrides it.
const char *build_c_compiler(Arena *a, const BackendOptions *o, const char **out_variable);
// Adds the commands that compile the C files, program.c alone at `level`: "-O3".
void build_c_compile(Build *b, const char *level, Commands *out);
// Adds their objects, program.o and so on, to the command that links.
void build_c_objects(const Build *b, Command *link);

// -- tools.c

bool is_program(const char *path);
// The next folder of a list like PATH, or NULL after the last.
const char *next_folder(Arena *a, const char **list);
// Returns the program of this name in a folder of PATH, or NULL.
const char *program_on_path(Arena *a, const char *name);
// The text of rt/headers.c in an archive: the hash of the headers it was compiled with; "" if it
// has none; NULL: no such file.
const char *archive_headers(Arena *a, const char *path);

// -- emit.c

// backend_emit, which finds the sources.
bool program_emit(const Module *m, const char *dir, const BackendOptions *o, Sources *out, Diag *d);

#endif
