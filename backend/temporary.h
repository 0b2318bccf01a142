// Temporary files of a build, which nnaot must not leave: the folder of the sources and the
// unfinished output.  They are removed when the build is done, when nnaot is told to stop, and if
// it was killed by the next build.

#ifndef BACKEND_TEMPORARY_H
#define BACKEND_TEMPORARY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

// From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE first stop the children and remove the recorded
// files.  A signal that was ignored stays ignored.
void temporary_watch(void);

// Makes a folder in TMPDIR, or /tmp, and removes those of killed processes there; *path becomes its
// name, which begins with `name`: "nnaot".  False with errno.
bool temporary_dir_make(char *path, size_t size, const char *name);
// Records the folder and the file; NULL: there is none (any more).  The paths must stay.
void temporary_dir(const char *path);
void temporary_file(const char *path);
// Removes the recorded folder with the files in it.
void temporary_dir_remove(void);
// Leaves it to the user.
void temporary_dir_keep(void);

// fork(), with the child recorded until temporary_wait has seen its end.  The child has no recorded
// files and no signal handlers.
pid_t temporary_fork(void);
// The same for a command: the child leads a process group, and its own children are stopped with
// it, as cc1 of cc.
pid_t temporary_fork_group(void);
// wait() for one child, or for any (-1).
pid_t temporary_wait(pid_t child, int *status);
// Stops all recorded children, and waits for their ends.
void temporary_stop_children(void);

enum { MAX_CHILDREN = 64 };

#endif
