// Temporary files of a build, which nnaot must not leave: the folder of the sources and the
// unfinished output.  They are removed when the build is done, and when nnaot is told to stop.

#ifndef BACKEND_TEMPORARY_H
#define BACKEND_TEMPORARY_H

#include <sys/types.h>

// From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE first stop the children and remove the recorded
// files.  A signal that was ignored stays ignored.
void temporary_watch(void);

// Records the folder and the file; NULL: there is none (any more).  The paths must stay.
void temporary_dir(const char *path);
void temporary_file(const char *path);
// Removes the recorded folder with the files that sources and compilers leave there.
void temporary_dir_remove(void);

// fork(), with the child recorded until temporary_wait has seen its end.  The child has no recorded
// files and no signal handlers.
pid_t temporary_fork(void);
// wait() for one child, or for any (-1).
pid_t temporary_wait(pid_t child, int *status);

enum { MAX_CHILDREN = 64 };

#endif
