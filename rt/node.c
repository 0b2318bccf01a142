// --node I/N --master HOST: starts the ranks of this host, with nothing else installed.
//
//     host1   ./train_rank --node 0/2 --master host1 …   ─ ranks 0 and 1
//     host2   ./train_rank --node 1/2 --master host1 …   ─ ranks 2 and 3
//
// Each rank is a process with the variables of torchrun (launch.c).  The first process waits for
// them, and passes signals on.  If one ends with an error, the others get time to say so, too; then
// they are terminated, and at last killed.  Its status is that of the first failure, 128 + N of a
// rank that was killed by signal N.

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime.h"

// Seconds after the first failure until the other ranks are terminated, and then until they are
// killed.  Over TCP a rank may wait 2.5 s for the error of another.
enum { PORT = 29500, REPORT_SECONDS = 4, GRACE_SECONDS = 6 };

static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { N_FORWARDED = sizeof forwarded / sizeof *forwarded };

typedef struct Node {
  int index, hosts; // of --node
  char *master;     // host of --master
  int port;
  int first, n; // its ranks
  pid_t *pid;   // [n], 0: it has ended
} Node;

// ---- the flags

static bool parse_node(const char *text, Node *out, Why *w) {
  int end = 0;
  if (sscanf(text, "%9d/%9d%n", &out->index, &out->hosts, &end) == 2 && !text[end] &&
      out->index >= 0 && out->index < out->hosts)
    return true;
  return why(w,
             "--node %s: the number of this host, from 0, and that of all hosts were expected\n"
             "hint: of two hosts, --node 0/2 on one and --node 1/2 on the other",
             text);
}

// Reads HOST, HOST:PORT, [IPV6] or [IPV6]:PORT; an address with several colons has no port.
static bool parse_master(const char *text, Node *out, Why *w) {
  const char *colon = strrchr(text, ':'), *bracket = strrchr(text, ']');
  bool several = colon && strchr(text, ':') != colon;
  if (colon && (bracket ? colon < bracket : several)) colon = NULL;
  int n = colon ? (int)(colon - text) : (int)strlen(text);
  if (n == 0 || (n == 2 && strncmp(text, "[]", 2) == 0))
    return why(w, "--master %s: a host was expected, such as host1 or host1:%d", text, PORT);
  out->master = nnrt_must_format("%.*s", n, text);
  out->port = PORT;
  if (!colon) return true;
  char *end;
  long port = strtol(colon + 1, &end, 10);
  if (end == colon + 1 || *end || port < 1 || port > 65535)
    return why(w, "--master %s: a port from 1 to 65535 was expected", text);
  out->port = (int)port;
  return true;
}

static bool read_flags(const Flags *f, const NnrtProgram *p, Node *out, Why *w) {
  *out = (Node){0};
  if (!f->node.given) return why(w, "--master needs --node\nhint: see --help");
  if (!parse_node(f->node.s, out, w)) return false;
  if (!f->master.given && out->hosts > 1)
    return why(w, "--node %s needs --master HOST, the host of --node 0/%d", f->node.s, out->hosts);
  if (!parse_master(f->master.given ? f->master.s : "127.0.0.1", out, w)) return false;
  if (p->ranks % out->hosts)
    return why(w,
               "--node %s: this executable is for %d rank%s, which %d hosts cannot share equally",
               f->node.s, p->ranks, p->ranks == 1 ? "" : "s", out->hosts);
  out->n = p->ranks / out->hosts;
  out->first = out->index * out->n;
  // A launcher has started this process as one rank.
  Launch l;
  if (!nnrt_launch_find(&l, w)) return false;
  return l.kind == LAUNCH_none ||
         why(w,
             "--node %s starts the ranks of this host, but a launcher has set %s and started this "
             "process as one of them\n"
             "hint: without --node, or unset %s",
             f->node.s, l.said_by, l.said_by);
}

// ---- the ranks

static void set_number(const char *name, int x) {
  char text[16];
  snprintf(text, sizeof text, "%d", x);
  setenv(name, text, 1);
}

// Makes this process a rank.
static void become(const Node *node, int i, pid_t parent) {
  // Whatever ends the parent ends its ranks.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
  // A key press would signal this process besides its parent, which passes the signal on.
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);
  set_number("RANK", node->first + i);
  set_number("WORLD_SIZE", node->n * node->hosts);
  set_number("LOCAL_RANK", i);
  set_number("LOCAL_WORLD_SIZE", node->n);
  setenv("MASTER_ADDR", node->master, 1);
  set_number("MASTER_PORT", node->port);
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
}

static void tell(const Node *node, int signal_number) {
  for (int i = 0; i < node->n; i++)
    if (node->pid[i] > 0) kill(node->pid[i], signal_number);
}

static void tell_first(const Node *node, int signal_number) {
  for (int i = 0; i < node->n; i++)
    if (node->pid[i] > 0) {
      kill(node->pid[i], signal_number);
      return;
    }
}

// Takes the ranks that have ended, and the status of the first failure.  Others end because a rank
// was killed, and may be seen before it: until this process sends signals, a killed rank is the
// first.
static void reap(Node *node, bool sent, int *io_status) {
  int code;
  for (pid_t gone; (gone = waitpid(-1, &code, WNOHANG)) > 0;)
    for (int i = 0; i < node->n; i++) {
      if (node->pid[i] != gone) continue;
      node->pid[i] = 0;
      bool killed = WIFSIGNALED(code), first = !*io_status || (killed && !sent && *io_status < 128);
      int status = killed ? 128 + WTERMSIG(code) : WEXITSTATUS(code);
      if (!status || !first) continue;
      *io_status = status;
      // A rank that ends by itself has reported its error.
      if (killed && !sent)
        nnrt_say_error("rank %d was killed by signal %d: %s", node->first + i, WTERMSIG(code),
                       strsignal(WTERMSIG(code)));
    }
}

static bool any_left(const Node *node) {
  for (int i = 0; i < node->n; i++)
    if (node->pid[i] > 0) return true;
  return false;
}

// Waits until all ranks have ended; `status` is not 0 if some were not started.
static int supervise(Node *node, const sigset_t *signals, int status) {
  double failed = status ? nnrt_now_us() : INFINITY;
  bool sent = false, terminated = false;
  while (any_left(node)) {
    struct timespec second = {.tv_sec = 1};
    int signal_number = sigtimedwait(signals, NULL, &second);
    if (signal_number == SIGUSR1 || signal_number == SIGHUP) {
      // One rank that asks for a checkpoint is enough: from several, at different steps, there
      // would be several.
      tell_first(node, signal_number);
    } else if (signal_number > 0 && signal_number != SIGCHLD) {
      sent |= signal_number != SIGUSR2; // the others end ranks
      tell(node, signal_number);
    }
    reap(node, sent, &status);
    if (status && isinf(failed)) failed = nnrt_now_us();
    double seconds = (nnrt_now_us() - failed) / 1e6;
    if (seconds >= REPORT_SECONDS + GRACE_SECONDS) {
      tell(node, SIGKILL);
    } else if (seconds >= REPORT_SECONDS && !terminated) {
      sent = terminated = true;
      tell(node, SIGTERM);
    }
  }
  return status;
}

void nnrt_node_start(const Flags *f, const NnrtProgram *p) {
  Node node;
  Why w;
  if (!f->node.given && !f->master.given) return;
  if (!read_flags(f, p, &node, &w)) {
    nnrt_say_error("%s", w.text);
    nnrt_end_job(2);
  }
  sigset_t signals, before;
  sigemptyset(&signals);
  for (int i = 0; i < N_FORWARDED; i++)
    sigaddset(&signals, forwarded[i]);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_BLOCK, &signals, &before);
  signal(SIGCHLD, SIG_DFL); // an inherited SIG_IGN would discard the status of ranks
  node.pid = nnrt_must_alloc((size_t)node.n * sizeof *node.pid);
  int status = 0;
  pid_t parent = getpid();
  fflush(NULL);
  for (int i = 0; i < node.n && !status; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      sigprocmask(SIG_SETMASK, &before, NULL);
      become(&node, i, parent);
      free(node.pid);
      free(node.master);
      return;
    }
    if (pid > 0) {
      node.pid[i] = pid;
      continue;
    }
    nnrt_say_error("cannot start rank %d: %s", node.first + i, strerror(errno));
    status = 1;
  }
  nnrt_end_job(supervise(&node, &signals, status));
}
