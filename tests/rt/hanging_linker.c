// Loaded before a program (LD_PRELOAD): a thread of it hangs in the dynamic linker, with its lock.
//
//     HANGING_LIBRARY   this library, compiled with -DINNER: its constructor does not end
//     HANGING_FILE      made as the constructor begins

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef INNER

__attribute__((constructor)) static void hang(void) {
  close(open(getenv("HANGING_FILE"), O_CREAT | O_WRONLY, 0666));
  for (;;)
    pause();
}

#else

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

static void *load(void *none) {
  (void)none;
  // The program's other threads have begun before it waits for the lock.
  sleep(1);
  dlopen(getenv("HANGING_LIBRARY"), RTLD_NOW);
  return NULL;
}

__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  pthread_create(&thread, NULL, load, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

#endif
