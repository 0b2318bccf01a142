// The descriptors 0 to 2, standard input, output and error, before anything else is opened.
//
// A process may be started without them.  The next file, or connection to another rank, would get
// their numbers then, and progress lines would go into it.  So each that is closed is opened as one
// that can only be written (0) or only be read (1 and 2): its use is an error, as it was before.

#ifndef NNRT_DESCRIPTORS_H
#define NNRT_DESCRIPTORS_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

// False with errno if one of them is closed and stays so.
static inline bool nnrt_descriptors_open(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    int got = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    // The root folder is there even without devices; neither reads nor writes of it succeed.
    if (got < 0) got = open("/", O_RDONLY | O_DIRECTORY);
    // The kernel gives the lowest free number.
    if (got != fd) return false;
  }
  return true;
}

#endif
