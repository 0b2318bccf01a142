// Addresses of ranks: names and numbers, interfaces, ports, and sockets that listen there.
//
//     NNRT_SOCKET_IFNAME=eth0         this rank listens at eth0's address, and others connect to it;
//                                     else NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME
//     NNRT_PORT_RANGE=29500-29600     of ranks other than 0, which listens at MASTER_PORT

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp.h"

// ---- addresses

// Copies of the address; false of another family.
static bool four(const Address *a, struct sockaddr_in *out) {
  memcpy(out, &a->at, sizeof *out);
  return a->at.ss_family == AF_INET;
}

static bool six(const Address *a, struct sockaddr_in6 *out) {
  memcpy(out, &a->at, sizeof *out);
  return a->at.ss_family == AF_INET6;
}

void nnrt_address_set_port(Address *a, int port) {
  struct sockaddr_in in;
  struct sockaddr_in6 in6;
  if (four(a, &in)) {
    in.sin_port = htons((uint16_t)port);
    memcpy(&a->at, &in, sizeof in);
  } else if (six(a, &in6)) {
    in6.sin6_port = htons((uint16_t)port);
    memcpy(&a->at, &in6, sizeof in6);
  }
}

static int port_of(const Address *a) {
  struct sockaddr_in in;
  struct sockaddr_in6 in6;
  if (four(a, &in)) return ntohs(in.sin_port);
  return six(a, &in6) ? ntohs(in6.sin6_port) : 0;
}

// Copies a host without the brackets of "[::1]".
static void without_brackets(const char *host, char *out, size_t size) {
  size_t n = strlen(host);
  bool brackets = n > 2 && host[0] == '[' && host[n - 1] == ']';
  snprintf(out, size, "%.*s", (int)(brackets ? n - 2 : n), host + brackets);
}

static int lookup(const char *host, int port, int flags, Address *out, int most, int *out_error) {
  char name[256], service[16];
  int n = 0;
  without_brackets(host, name, sizeof name);
  snprintf(service, sizeof service, "%d", port);
  struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
  struct addrinfo *found = NULL;
  *out_error = getaddrinfo(name, service, &want, &found);
  for (struct addrinfo *a = found; a && n < most; a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    out[n] = (Address){.n = a->ai_addrlen};
    memcpy(&out[n++].at, a->ai_addr, a->ai_addrlen);
  }
  if (found) freeaddrinfo(found);
  if (n == 0 && *out_error == 0) *out_error = EAI_NONAME;
  return n;
}

int nnrt_address_resolve(const char *host, int port, Address out[MOST_ADDRESSES], int *out_error) {
  return lookup(host, port, 0, out, MOST_ADDRESSES, out_error);
}

bool nnrt_address_parse(const char *text, int port, Address *out) {
  int error;
  return lookup(text, port, AI_NUMERICHOST, out, 1, &error) == 1;
}

// Sockets of both families report IPv4 addresses as ::ffff:10.88.0.2.
static Address unmapped(const Address *a) {
  struct sockaddr_in6 from;
  Address out = *a;
  if (!six(a, &from) || !IN6_IS_ADDR_V4MAPPED(&from.sin6_addr)) return out;
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = from.sin6_port};
  memcpy(&to.sin_addr, &from.sin6_addr.s6_addr[12], 4);
  out = (Address){.n = sizeof to};
  memcpy(&out.at, &to, sizeof to);
  return out;
}

void nnrt_address_text(const Address *a, char out[ADDRESS_TEXT]) {
  Address plain = unmapped(a);
  // NI_NUMERICHOST keeps the scope of a link-local address.
  if (getnameinfo((void *)&plain.at, plain.n, out, ADDRESS_TEXT, NULL, 0, NI_NUMERICHOST) != 0)
    out[0] = 0;
}

void nnrt_address_text_port(const Address *a, char out[ADDRESS_TEXT]) {
  char text[ADDRESS_TEXT];
  nnrt_address_text(a, text);
  bool brackets = strchr(text, ':') != NULL;
  snprintf(out, ADDRESS_TEXT, brackets ? "[%.50s]:%d" : "%.50s:%d", text, port_of(a));
}

bool nnrt_address_is_loopback(const Address *a) {
  struct sockaddr_in in;
  struct sockaddr_in6 in6;
  Address plain = unmapped(a);
  if (four(&plain, &in)) return ntohl(in.sin_addr.s_addr) >> 24 == 127;
  return six(&plain, &in6) && IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

// ---- the environment

// Whether an interface is selected by a list as NCCL has it: prefixes of names; after '=' names;
// after '^' prefixes of names that are not used.
static bool selects(const char *list, const char *name) {
  bool exclude = *list == '^';
  if (exclude) list++;
  bool exact = *list == '=', listed = false;
  if (exact) list++;
  while (*list) {
    size_t n = strcspn(list, ",");
    listed |= n > 0 && strncmp(list, name, n) == 0 && (!exact || strlen(name) == n);
    list += n + (list[n] == ',');
  }
  return listed != exclude;
}

static bool find_interface(TcpPlaces *p, Why *w) {
  const char *names[] = {"NNRT_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"};
  const char *list = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names && !list; i++) {
    list = getenv(names[i]);
    if (list) p->said_by = names[i];
  }
  if (!list) return true;
  // Only NCCL's are prefixes.
  bool exact = strcmp(p->said_by, "NCCL_SOCKET_IFNAME") != 0;
  char *pattern = nnrt_must_format("%s%s", exact ? "=" : "", list), *all = NULL;
  struct ifaddrs *found = NULL;
  int code = getifaddrs(&found), error = errno;
  char used[IF_NAMESIZE] = "";
  for (struct ifaddrs *i = found; i; i = i->ifa_next) {
    int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
    bool loops = i->ifa_flags & IFF_LOOPBACK;
    if (family != AF_INET && family != AF_INET6) continue;
    if (!all || !strstr(all, i->ifa_name))
      all = nnrt_must_append(all, "%s%s", all ? ", " : "", i->ifa_name);
    Address a = {.n = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)};
    memcpy(&a.at, i->ifa_addr, a.n);
    // The first interface is taken, with an address of each family.  An address of the link only
    // is of no use to others.
    struct sockaddr_in6 in6;
    bool local = six(&a, &in6) && IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr);
    if (local || !selects(pattern, i->ifa_name) || (*list == '^' && loops)) continue;
    if (*used && strcmp(used, i->ifa_name) != 0) continue;
    if (p->n_interface == 2 || (p->n_interface && p->interface[0].at.ss_family == family)) continue;
    snprintf(used, sizeof used, "%s", i->ifa_name);
    p->interface[p->n_interface++] = a;
  }
  if (found) freeifaddrs(found);
  free(pattern);
  bool ok = p->n_interface > 0;
  if (code)
    why(w, "%s: cannot list interfaces: %s", p->said_by, strerror(error));
  else if (!ok)
    why(w, "%s is '%.100s', but no such interface has an address\nhint: this machine has %.300s",
        p->said_by, list, all ? all : "none");
  free(all);
  return ok;
}

bool nnrt_places_read(TcpPlaces *p, Why *w) {
  *p = (TcpPlaces){0};
  const char *range = getenv("NNRT_PORT_RANGE");
  if (range) {
    char end;
    int least, most;
    if (sscanf(range, "%5d-%5d%c", &least, &most, &end) != 2 || least < 1 || most > 65535 ||
        least > most)
      return why(w,
                 "NNRT_PORT_RANGE is '%.100s', which is no range of ports\n"
                 "hint: two numbers from 1 to 65535, as in NNRT_PORT_RANGE=29500-29600",
                 range);
    p->least_port = least;
    p->most_port = most;
  }
  return find_interface(p, w);
}

// ---- listening

void nnrt_listeners_close(Listeners *l) {
  for (int i = 0; i < l->n; i++)
    close(l->fd[i]);
  l->n = 0;
}

// Returns a socket that listens at the address, with a port of the kernel's in place of 0.
static int listen_at(Address *a, bool both_families) {
  int on = 1, fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  // A job that starts right after another may use the same port.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  int only = !both_families;
  if (a->at.ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  socklen_t n = a->n;
  if (bind(fd, (void *)&a->at, a->n) == 0 && listen(fd, 1024) == 0 &&
      getsockname(fd, (void *)&a->at, &n) == 0)
    return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

bool nnrt_listen(Listeners *l, const Address *a, int n, int port, Why *w) {
  *l = (Listeners){.port = port};
  Address all[] = {{.n = sizeof(struct sockaddr_in6)}, {.n = sizeof(struct sockaddr_in)}};
  all[0].at.ss_family = AF_INET6;
  all[1].at.ss_family = AF_INET;
  bool everywhere = n == 0;
  int error = 0;
  // One socket serves both families, except on a machine without IPv6.
  for (int i = 0; i < (everywhere ? 2 : n) && !(everywhere && l->n); i++) {
    Address at = everywhere ? all[i] : a[i];
    nnrt_address_set_port(&at, l->port);
    int fd = listen_at(&at, everywhere);
    if (fd >= 0) {
      l->port = port_of(&at);
      l->fd[l->n++] = fd;
      l->open_to_others |= !nnrt_address_is_loopback(&at);
      continue;
    }
    error = errno;
    // The name may have addresses of other machines, or of a family that is off here.
    if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) continue;
    char text[ADDRESS_TEXT] = "";
    nnrt_address_text_port(&at, text);
    nnrt_listeners_close(l);
    return why(w, "cannot listen at %s: %s%s", text, strerror(error),
               error == EADDRINUSE ? "\nhint: another MASTER_PORT for each job" : "");
  }
  return l->n > 0 || why(w, "cannot listen at port %d: %s", port, strerror(error));
}

bool nnrt_listen_in_range(Listeners *l, const Address *a, int n, const TcpPlaces *p, Why *w) {
  if (!p->least_port) return nnrt_listen(l, a, n, 0, w);
  int ports = p->most_port - p->least_port + 1;
  unsigned first;
  // Ranks of one machine begin at different ports.
  nnrt_draw(&first, sizeof first);
  for (int i = 0; i < ports; i++)
    if (nnrt_listen(l, a, n, p->least_port + (int)((first + (unsigned)i) % (unsigned)ports), w))
      return true;
  return why(w,
             "no port of NNRT_PORT_RANGE %d-%d is free here\n"
             "hint: a range with a port for each rank of this machine",
             p->least_port, p->most_port);
}
