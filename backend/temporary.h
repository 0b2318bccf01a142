// What nnaot makes on the way to an executable and must not leave: the folder of the sources and
// the unfinished output.  They go when their work is done, and when nnaot is told to stop.

#ifndef BACKEND_TEMPORARY_H
#define BACKEND_TEMPORARY_H

#include <sys/types.h>

// From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE first stop the children and remove what is noted.
// A signal that was ignored stays so.
void temporary_watch(void);

// Notes the folder and the file; NULL: there is none (any more).  The paths must stay.
void temporary_dir(const char *dir);
void temporary_file(const char *path);
// Removes the noted folder with the files that sources and compilers leave there.
void temporary_dir_remove(void);

// fork(), with the child noted until temporary_wait has seen its end.  The child has noted nothing
// and watches nothing.
pid_t temporary_fork(void);
// wait() for one child, or for any (-1).
pid_t temporary_wait(pid_t child, int *status);

enum { MAX_CHILDREN = 64 };

#endif
