// The secret of a job, which its ranks prove to each other without sending it.
//
//     NNRT_JOB_KEY=TEXT         or
//     NNRT_JOB_KEY_FILE=FILE    readable by its owner only; spaces around the text do not count
//
// Proofs are HMAC-SHA256 of libcrypto (OpenSSL), which is loaded only if a key is given.

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tcp.h"

enum { KEY_LEAST = 16, KEY_MOST = 4096 };

#define KEY_HINT "\nhint: openssl rand -hex 32 makes a key"

// Reads the file into `text`, which has room for KEY_MOST bytes and one more.
static bool read_file(const char *path, char *text, Why *w) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO is not waited for
  if (fd < 0 || fstat(fd, &st) != 0) {
    int error = errno;
    if (fd >= 0) close(fd);
    return why(w, "cannot read the job's key from NNRT_JOB_KEY_FILE '%s': %s" KEY_HINT, path,
               strerror(error));
  }
  bool regular = S_ISREG(st.st_mode), private = (st.st_mode & 077) == 0;
  ssize_t n = regular ? read(fd, text, KEY_MOST + 1) : 0;
  int error = errno;
  close(fd);
  if (!regular) return why(w, "NNRT_JOB_KEY_FILE '%s' is no file" KEY_HINT, path);
  if (!private)
    return why(w,
               "NNRT_JOB_KEY_FILE '%s' has mode %03o: others can read the job's key\n"
               "hint: chmod 600 '%s', and make a new key",
               path, (unsigned)(st.st_mode & 0777), path);
  if (n < 0)
    return why(w, "cannot read the job's key from NNRT_JOB_KEY_FILE '%s': %s" KEY_HINT, path,
               strerror(error));
  if (n > KEY_MOST)
    return why(w, "NNRT_JOB_KEY_FILE '%s' has more than %d bytes" KEY_HINT, path, KEY_MOST);
  text[n] = 0;
  // A text file: C functions would not see bytes after a zero.
  if (memchr(text, 0, (size_t)n)) return why(w, "NNRT_JOB_KEY_FILE '%s' is no text" KEY_HINT, path);
  return true;
}

static bool load_library(Key *k, Why *w) {
  const char *own = getenv("NNRT_CRYPTO_LIBRARY");
  const char *names[] = {own, "libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"};
  size_t n = own ? 1 : sizeof names / sizeof *names;
  for (size_t i = own ? 0 : 1; i < n && !k->library; i++)
    k->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!k->library)
    return why(w,
               "a job's key needs OpenSSL's libcrypto, which is not found: %s\n"
               "hint: install libssl3, or name the library in NNRT_CRYPTO_LIBRARY",
               dlerror());
  void *symbol[3] = {dlsym(k->library, "EVP_sha256"), dlsym(k->library, "HMAC"),
                     dlsym(k->library, "CRYPTO_memcmp")};
  if (!symbol[0] || !symbol[1] || !symbol[2])
    return why(w, "'%s' is not OpenSSL's libcrypto: it has no HMAC\nhint: install libssl3",
               own ? own : "libcrypto.so");
  // C has no cast from an object's pointer to a function's.
  memcpy(&k->sha256, &symbol[0], sizeof symbol[0]);
  memcpy(&k->hmac, &symbol[1], sizeof symbol[1]);
  memcpy(&k->differ, &symbol[2], sizeof symbol[2]);
  return true;
}

bool nnrt_key_read(Key *k, Why *w) {
  const char *text = getenv("NNRT_JOB_KEY"), *path = getenv("NNRT_JOB_KEY_FILE");
  const char *name = text ? "NNRT_JOB_KEY" : "NNRT_JOB_KEY_FILE";
  char file[KEY_MOST + 2] = "";
  *k = (Key){0};
  if (!text && !path) return true;
  if (text && path)
    return why(w, "NNRT_JOB_KEY and NNRT_JOB_KEY_FILE are both set\nhint: unset one of them");
  if (path && !read_file(path, file, w)) return false;
  if (path) text = file;
  while (isspace((unsigned char)*text))
    text++;
  size_t n = strlen(text);
  while (n > 0 && isspace((unsigned char)text[n - 1]))
    n--;
  if (n == 0) return why(w, "the key in %s is empty" KEY_HINT, name);
  if (n < KEY_LEAST)
    return why(w, "the key in %s has %zu characters, fewer than %d" KEY_HINT, name, n, KEY_LEAST);
  if (n > KEY_MOST)
    return why(w, "the key in %s has more than %d characters" KEY_HINT, name, KEY_MOST);
  k->n = (int)n;
  k->bytes = nnrt_must_alloc(n);
  memcpy(k->bytes, text, n);
  explicit_bzero(file, sizeof file);
  return load_library(k, w);
}

void nnrt_key_free(Key *k) {
  if (k->bytes) explicit_bzero(k->bytes, (size_t)k->n);
  free(k->bytes);
  if (k->library) dlclose(k->library);
  *k = (Key){0};
}

void nnrt_key_sign(const Key *k, const void *data, size_t n, unsigned char out[PROOF]) {
  unsigned size = 0;
  if (k->hmac(k->sha256(), k->bytes, k->n, data, n, out, &size) && size == PROOF) return;
  nnrt_say_error("libcrypto cannot compute HMAC-SHA256");
  nnrt_end_job(1);
}

bool nnrt_key_fits(const Key *k, const unsigned char a[PROOF], const unsigned char b[PROOF]) {
  // Without a key a proof is a nonce that both sides have seen.
  return k->n ? k->differ(a, b, PROOF) == 0 : memcmp(a, b, PROOF) == 0;
}

void nnrt_draw(void *out, size_t n) {
  for (size_t got = 0; got < n;) {
    ssize_t step = getrandom((char *)out + got, n - got, 0);
    if (step < 0 && errno != EINTR) {
      nnrt_say_error("cannot draw random numbers: %s", strerror(errno));
      nnrt_end_job(1);
    }
    if (step > 0) got += (size_t)step;
  }
}
