// Before the constructors of any library: opens closed standard descriptors (descriptors.h), as
// libraries may open files, and watches for crashes (crash.c), as libraries may crash there.

#include <string.h>

#include "descriptors.h"
#include "runtime.h"

static bool begun, opened;

static void begin(int argc, char **argv, char **environment) {
  (void)environment;
  begun = true;
  opened = nnrt_descriptors_open();
  nnrt_crash_watch(argc > 0 ? nnrt_base_name(argv[0]) : "");
}

// The dynamic linker calls these functions first.
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **,
                                                                            char **) = begin;

bool nnrt_preinit(int argc, char **argv, Why *w) {
  // A linker of another kind may have left out the table.
  if (!begun) begin(argc, argv, NULL);
  return opened ||
         why(w, "standard input, output or error is closed, and /dev/null cannot be opened: %s",
             strerror(errno));
}
