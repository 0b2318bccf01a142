// A cluster from a file in Lua, which returns
//
//     return {
//       nodes = 2, per_node = 8, nics = 4,                  -- 1, needed, 1
//       inside = { alpha = 0.6e-6, beta = 1 / 150e9 },      -- seconds, seconds per byte; needed
//       across = { alpha = 2.7e-6, beta = 1 / 12.5e9 },     -- of an adapter; needed with 2 nodes
//       start = 6.6e-6,                                     -- seconds until a primitive begins; 0
//       memory = 32e9, memory_speed = 900e9,                -- bytes, bytes/s; not known
//       f32 = 15.7e12, half = 125e12,                       -- FLOP/s; not known
//       reserve = 0.6e9,                                    -- bytes of `memory` out of use; 0
//       launch = 2e-6,                                      -- seconds of a kernel; 0
//       host = 16e9,                                        -- bytes/s to host memory; memory_speed
//       half_efficiency = 0.5,                              -- of products, a share of `half`; 1
//       attention_efficiency = 0.4,                         -- of fused attention; half_efficiency
//       dispatch = 8e-6,                                    -- least seconds of a kernel; 0
//       host_node = 48e9,                                   -- bytes/s of a node; no limit
//       host_update = 5e10, host_weights = true,            -- bytes/s; on the devices, false
//       prefetch = 4, queues = 1,                           -- 0, 2
//       nccl = true, nvls = true, pat = true,               -- false
//       half_comm = true,                                   -- false
//       blocking = true,                                    -- false
//       gpus = true,                                        -- false: processors; not known
//       dollars_per_hour = 2.5,                             -- of a device; not known
//       products = {                                        -- by size; the peak, or half_efficiency
//         { flops = 2 * 512^3, f32 = 6e12, half = 20e12 },  -- FLOP, FLOP/s; either may be missing
//         { flops = 2 * 4096^3, half = 80e12 },
//       },
//       collectives = {                                     -- figures of NCCL
//         { algorithm = "ring", protocol = "ll", start = 7e-6, inside = 1e-6, across = 3e-6,
//           share = 0.4, far_share = 0.5 },                 -- each number may be missing
//       },
//       devices = {                                         -- devices that differ; none
//         { from = 8, to = 15, memory = 16e9, f32 = 8e12,   -- missing fields are as above
//           inside = { alpha = 5e-6, beta = 1 / 16e9 } },   -- and across
//       },
//     }
//
// or what a named cluster has not, or has otherwise:
//
//     return { like = "h100:4x8", dollars_per_hour = 98.32 / 8 }
//
// A comment gives the unit, and then the default of the field; with `like`, that is the value of
// the named cluster.  Devices that share an adapter have the same `across`.

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cluster.h"
#include "lua/lua_file.h"

// A field of the file and its limits.  A number beyond them is a typing error, and would make sums
// of costs overflow.
typedef struct Field {
  const char *name;
  enum { COUNT, LINK, NUMBER, FLAG, NAME, PRODUCTS, COLLECTIVES, KINDS } kind;
  bool of_device; // devices may have their own
  size_t at;      // offset in a Cluster
  const char *unit;
  double least, most; // of a number; 0 is always legal
} Field;

#define FIELD(name, kind, of_device, ...)                                                          \
  { #name, kind, of_device, offsetof(Cluster, name), __VA_ARGS__ }
#define SECONDS "seconds", 0, 1e3
static const Field fields[] = {
    FIELD(nodes, COUNT, false, "", 1, CLUSTER_DEVICES),
    FIELD(per_node, COUNT, false, "", 1, CLUSTER_DEVICES),
    FIELD(nics, COUNT, false, "", 1, CLUSTER_DEVICES),
    FIELD(inside, LINK, true, "", 0, 0),
    FIELD(across, LINK, true, "", 0, 0),
    FIELD(start, NUMBER, false, SECONDS),
    FIELD(memory, NUMBER, true, "bytes", 1, 1e18),
    FIELD(memory_speed, NUMBER, true, "bytes/s", 1e6, 1e18),
    FIELD(f32, NUMBER, true, "FLOP/s", 1e6, 1e21),
    FIELD(half, NUMBER, true, "FLOP/s", 1e6, 1e21),
    FIELD(reserve, NUMBER, false, "bytes", 1, 1e18),
    FIELD(launch, NUMBER, true, SECONDS),
    FIELD(host, NUMBER, true, "bytes/s", 1e6, 1e18),
    FIELD(half_efficiency, NUMBER, true, "", 0.01, 1),
    FIELD(attention_efficiency, NUMBER, true, "", 0.01, 1),
    FIELD(dispatch, NUMBER, true, SECONDS),
    FIELD(host_node, NUMBER, false, "bytes/s", 1e6, 1e18),
    FIELD(host_update, NUMBER, false, "bytes/s", 1e6, 1e18),
    FIELD(host_weights, FLAG, false, "", 0, 0),
    FIELD(nccl, FLAG, false, "", 0, 0),
    FIELD(nvls, FLAG, false, "", 0, 0),
    FIELD(pat, FLAG, false, "", 0, 0),
    FIELD(half_comm, FLAG, false, "", 0, 0),
    FIELD(blocking, FLAG, false, "", 0, 0),
    FIELD(gpus, FLAG, false, "", 0, 0),
    FIELD(prefetch, COUNT, false, "", 0, 1000),
    FIELD(queues, COUNT, false, "", 1, 2),
    {"dollars_per_hour", NUMBER, true, offsetof(Cluster, dollars), "dollars", 1e-6, 1e6},
    {"products", PRODUCTS, false, 0, "", 0, 0},
    {"collectives", COLLECTIVES, false, 0, "", 0, 0},
    {"like", NAME, false, 0, "", 0, 0},
    {"devices", KINDS, false, 0, "", 0, 0},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };
static const Field alpha_field = {"alpha", NUMBER, false, offsetof(Link, alpha), SECONDS};
static const Field beta_field = {"beta", NUMBER, false, offsetof(Link, beta), "seconds of a byte",
                                 0,      1};

// The field names of a cluster, or of a kind of devices, after `first`.
static const char *field_names(Arena *a, const char *first, bool of_device) {
  StrBuf b = {.arena = a};
  const char *last = NULL;
  strbuf_add(&b, first);
  for (int i = 0; i < N_FIELDS; i++) {
    if (of_device && !fields[i].of_device) continue;
    // The last name follows an "and".
    if (last) strbuf_addf(&b, "%s%s", b.n ? ", " : "", last);
    last = fields[i].name;
  }
  strbuf_addf(&b, " and %s", last);
  return b.at;
}

static const LuaField *find_field(const LuaTable *t, const char *name) {
  for (int i = 0; i < t->n; i++)
    if (str_equal(t->at[i].name, name)) return &t->at[i];
  return NULL;
}

static bool read_number(const LuaField *f, const Field *as, double *out, Diag *d) {
  bool ok = f->kind == LUA_FILE_number && f->number >= 0 && f->number <= as->most;
  if (!ok || (f->number > 0 && f->number < as->least))
    return diag_error(d, f->loc, "'%s' must be a number%s%s from %g to %g%s", f->name,
                      *as->unit ? " of " : "", as->unit, as->least, as->most,
                      as->least > 0 ? ", or 0 if it is not known" : "");
  // 0 stands for a number that is not known.
  *out = f->number;
  return true;
}

static bool read_count(const LuaField *f, const Field *as, int *out, Diag *d) {
  if (f->kind != LUA_FILE_number || f->number != floor(f->number) || f->number < as->least ||
      f->number > as->most)
    return diag_error(d, f->loc, "'%s' must be a whole number from %g to %g", f->name, as->least,
                      as->most);
  *out = (int)f->number;
  return true;
}

// Reads a field into its place in a Cluster.
static bool read_value(const LuaField *f, const Field *as, Cluster *c, Diag *d) {
  void *out = (char *)c + as->at;
  if (as->kind == COUNT) return read_count(f, as, out, d);
  if (as->kind == NUMBER) return read_number(f, as, out, d);
  if (as->kind == FLAG) {
    *(bool *)out = f->kind == LUA_FILE_boolean && f->number != 0;
    return f->kind == LUA_FILE_boolean ||
           diag_error(d, f->loc, "'%s' must be true or false", f->name);
  }
  // A link is a table of two numbers.
  Link *link = out;
  const LuaField *alpha = NULL, *beta = NULL;
  if (f->kind == LUA_FILE_table) {
    alpha = find_field(f->table, "alpha");
    beta = find_field(f->table, "beta");
  }
  // Both numbers are needed, and there are no others.
  if (!alpha || !beta || f->table->n > 2)
    return diag_error(d, f->loc, "'%s' must be { alpha = SECONDS, beta = SECONDS OF A BYTE }",
                      f->name);
  bool ok = read_number(alpha, &alpha_field, &link->alpha, d);
  return read_number(beta, &beta_field, &link->beta, d) && ok;
}

static const Field *field_of(const char *name, bool of_device) {
  for (int i = 0; i < N_FIELDS; i++)
    if (str_equal(name, fields[i].name) && (fields[i].of_device || !of_device)) return &fields[i];
  return NULL;
}

static bool read_product(const LuaField *f, ProductSpeed *out, Diag *d) {
  static const Field flops = {"flops", NUMBER, false, 0, "FLOP", 1, 1e24};
  static const Field speed = {"f32", NUMBER, false, 0, "FLOP/s", 1e3, 1e21};
  bool ok = f->kind == LUA_FILE_table;
  for (int i = 0; ok && i < f->table->n; i++) {
    const LuaField *of = &f->table->at[i];
    if (str_equal(of->name, "flops"))
      ok = read_number(of, &flops, &out->flops, d);
    else if (str_equal(of->name, "f32") || str_equal(of->name, "half"))
      ok = read_number(of, &speed, of->name[0] == 'f' ? &out->f32 : &out->half, d);
    else
      return diag_error(d, of->loc, "a product has no '%s', only flops, f32 and half", of->name);
    if (!ok) return false;
  }
  if (ok && out->flops > 0 && (out->f32 > 0 || out->half > 0)) return true;
  return diag_error(
      d, f->loc, "%s of 'products' must be { flops = FLOP, f32 = FLOP/S, half = FLOP/S }", f->name);
}

// Checks that a larger product takes at least as long as the last one before it with a speed.
static bool check_seconds(const LuaField *f, const ProductSpeed *p, int n, bool half, Diag *d) {
  double speed = half ? p[n].half : p[n].f32;
  for (int k = n - 1; k >= 0 && speed > 0; k--) {
    double before = half ? p[k].half : p[k].f32;
    if (before <= 0) continue;
    if (p[k].flops / before <= (1 + 1e-6) * p[n].flops / speed) return true; // as printed
    return diag_error(d, f->loc, "%s of 'products' takes less time than a smaller one in %s",
                      f->name, half ? "16 bits" : "f32");
  }
  return true;
}

static bool read_products(const LuaField *f, Cluster *c, Arena *a, Diag *d) {
  if (f->kind != LUA_FILE_table || !f->table->n)
    return diag_error(d, f->loc, "'products' must be a list of { flops = FLOP, half = FLOP/S }");
  int n = f->table->n;
  ProductSpeed *p = arena_array(a, ProductSpeed, n);
  for (int i = 0; i < n; i++) {
    const LuaField *of = &f->table->at[i];
    if (!read_product(of, &p[i], d)) return false;
    if (i && p[i].flops <= p[i - 1].flops)
      return diag_error(d, of->loc, "%s of 'products' must be larger than the one before it",
                        of->name);
    if (!check_seconds(of, p, i, false, d) || !check_seconds(of, p, i, true, d)) return false;
  }
  c->products = p;
  c->n_products = n;
  return true;
}

// -- Algorithms of collectives -------------------------------------------------------------------

// Reads one of the names.
static bool read_word(const LuaField *f, const char *const *names, const char **out, Arena *a,
                      Diag *d) {
  StrBuf b = {.arena = a};
  for (; *names; names++) {
    if (f->kind == LUA_FILE_string && str_equal(f->string, *names)) {
      *out = *names;
      return true;
    }
    strbuf_addf(&b, "%s\"%s\"", b.n ? (names[1] ? ", " : " or ") : "", *names);
  }
  return diag_error(d, f->loc, "'%s' must be %s", f->name, b.at);
}

static bool read_way(const LuaField *f, CollectiveWay *out, Arena *a, Diag *d) {
  static const char *const algorithms[] = {"ring", "tree", "nvls", "pat", NULL};
  static const char *const protocols[] = {"ll", "ll128", "simple", NULL};
  static const Field seconds[] = {
      {"start", NUMBER, false, offsetof(CollectiveWay, start), SECONDS},
      {"inside", NUMBER, false, offsetof(CollectiveWay, inside), SECONDS},
      {"across", NUMBER, false, offsetof(CollectiveWay, across), SECONDS},
      {"share", NUMBER, false, offsetof(CollectiveWay, share), "", 0.001, 1},
      {"far_share", NUMBER, false, offsetof(CollectiveWay, far_share), "", 0.001, 1}};
  enum { N = sizeof seconds / sizeof *seconds };
  *out = (CollectiveWay){.start = -1, .inside = -1, .across = -1};
  for (int i = 0; f->kind == LUA_FILE_table && i < f->table->n; i++) {
    const LuaField *of = &f->table->at[i];
    const Field *as = NULL;
    for (int k = 0; k < N && !as; k++)
      if (str_equal(of->name, seconds[k].name)) as = &seconds[k];
    bool ok = true;
    if (as)
      ok = read_number(of, as, (double *)((char *)out + as->at), d);
    else if (str_equal(of->name, "algorithm"))
      ok = read_word(of, algorithms, &out->algorithm, a, d);
    else if (str_equal(of->name, "protocol"))
      ok = read_word(of, protocols, &out->protocol, a, d);
    else
      return diag_error(d, of->loc,
                        "a collective has no '%s', only algorithm, protocol, start, "
                        "inside, across, share and far_share",
                        of->name);
    if (!ok) return false;
  }
  if (!out->algorithm || !out->protocol)
    return diag_error(d, f->loc,
                      "%s of 'collectives' must be { algorithm = \"ring\", protocol = "
                      "\"ll\", start = SECONDS }",
                      f->name);
  bool simple = str_equal(out->algorithm, "nvls") || str_equal(out->algorithm, "pat");
  return !simple || str_equal(out->protocol, "simple") ||
         diag_error(d, f->loc, "%s has the protocol simple only", out->algorithm);
}

static bool read_ways(const LuaField *f, Cluster *c, Arena *a, Diag *d) {
  if (f->kind != LUA_FILE_table)
    return diag_error(d, f->loc,
                      "'collectives' must be a list of { algorithm = \"ring\", protocol "
                      "= \"ll\", start = SECONDS }");
  int n = f->table->n;
  CollectiveWay *way = arena_array(a, CollectiveWay, n ? n : 1);
  for (int i = 0; i < n; i++) {
    if (!read_way(&f->table->at[i], &way[i], a, d)) return false;
    for (int k = 0; k < i; k++) {
      if (!str_equal(way[k].algorithm, way[i].algorithm) ||
          !str_equal(way[k].protocol, way[i].protocol))
        continue;
      diag_error(d, f->table->at[i].loc, "%s with %s is in 'collectives' twice, as %s and %s",
                 way[i].algorithm, way[i].protocol, f->table->at[k].name, f->table->at[i].name);
      diag_note(d, f->table->at[k].loc, "here");
      return false;
    }
  }
  c->collectives = way;
  c->n_collectives = n;
  return true;
}

static bool read_field(const LuaField *f, Cluster *c, Arena *a, Diag *d) {
  const Field *as = field_of(f->name, false);
  if (as && as->kind == NAME) return true; // read first
  if (as && as->kind == PRODUCTS) return read_products(f, c, a, d);
  if (as && as->kind == COLLECTIVES) return read_ways(f, c, a, d);
  if (as && as->kind == KINDS) return true; // read last, after all other fields
  if (as) return read_value(f, as, c, d);
  // A misspelled field would leave its default.
  diag_error(d, f->loc, "a cluster has no '%s'", f->name);
  diag_hint(d, "it has %s", field_names(a, "", false));
  return false;
}

// -- Kinds of devices ----------------------------------------------------------------------------

static const char kind_text[] = "{ from = FIRST, to = LAST, memory = BYTES }";

// Takes the reserve off the memory of a device, if that is known.
static bool take_reserve(const Cluster *c, double *memory, const Loc *loc, Diag *d) {
  if (*memory > 0 && c->reserve >= *memory)
    return diag_error(d, loc, "a device of %.0f bytes has no memory besides 'reserve', %.0f",
                      *memory, c->reserve);
  if (*memory > 0) *memory -= c->reserve;
  return true;
}

static bool read_kind(const LuaField *f, const Cluster *c, DeviceKind *out, Arena *a, Diag *d) {
  Cluster is = *c;
  // The file has the memory of whole devices.
  if (is.memory > 0) is.memory += c->reserve;
  *out = (DeviceKind){.from = -1, .to = -1};
  if (f->kind != LUA_FILE_table)
    return diag_error(d, f->loc, "%s of 'devices' must be %s", f->name, kind_text);
  bool ok = true;
  for (int i = 0; i < f->table->n; i++) {
    const LuaField *field = &f->table->at[i];
    // A field of a kind, where `is` has the properties of devices without a kind.
    const Field *as = field_of(field->name, true);
    const Field number = {field->name, COUNT, false, 0, "", 0, cluster_devices(&is) - 1};
    if (str_equal(field->name, "from"))
      ok &= read_count(field, &number, &out->from, d);
    else if (str_equal(field->name, "to"))
      ok &= read_count(field, &number, &out->to, d);
    else if (as)
      ok &= read_value(field, as, &is, d);
    else {
      ok = diag_error(d, field->loc, "some devices have no '%s' of their own", field->name);
      diag_hint(d, "they have %s", field_names(a, "from, to", true));
    }
  }
  ok = take_reserve(c, &is.memory, f->loc, d) && ok;
  // Fields that the kind leaves out have the cluster's values.
  out->is = cluster_least(&is);
  out->inside = is.inside;
  out->across = is.across;
  // A kind is a range of devices.
  if (ok && (out->from < 0 || out->to < 0))
    ok = diag_error(d, f->loc, "%s of 'devices' must say the first of them and the last: from, to",
                    f->name);
  if (ok && out->to < out->from)
    ok = diag_error(d, f->loc, "%s of 'devices' is from %d to %d, which is none", f->name,
                    out->from, out->to);
  return ok;
}

static bool link_equal(const Link *a, const Link *b) {
  return a->alpha == b->alpha && a->beta == b->beta;
}

// No device is of two kinds.
static bool check_twice(const LuaTable *t, const DeviceKind *kind, Diag *d) {
  bool ok = true;
  for (int i = 0; i < t->n; i++)
    for (int k = 0; k < i; k++) {
      int from = kind[i].from > kind[k].from ? kind[i].from : kind[k].from;
      int to = kind[i].to < kind[k].to ? kind[i].to : kind[k].to;
      if (from > to) continue;
      ok = diag_error(d, t->at[i].loc, "devices %d to %d are in 'devices' twice", from, to);
      diag_note(d, t->at[k].loc, "here");
    }
  return ok;
}

// Gives each device the number of its kind; 0: none.
static void set_kinds(Cluster *c, const DeviceKind *kind, int n, Arena *a) {
  int *kind_of = arena_array(a, int, cluster_devices(c));
  for (int i = 0; i < n; i++) {
    for (int k = kind[i].from; k <= kind[i].to; k++)
      kind_of[k] = i + 1;
    // Links of some devices may differ from the others'.
    c->links_differ |=
        !link_equal(&kind[i].inside, &c->inside) || !link_equal(&kind[i].across, &c->across);
  }
  c->others = cluster_least(c);
  c->kind = kind;
  c->n_kinds = n;
  c->kind_of = kind_of;
}

// Gives the cluster the minimum of each property over all devices; of `launch`, the maximum.
static void set_least(Cluster *c) {
  Device least = cluster_device(c, 0);
  for (int i = 1; i < cluster_devices(c); i++)
    least = device_least(least, cluster_device(c, i));
  c->memory = least.memory;
  c->memory_speed = least.memory_speed;
  c->host = least.host;
  c->f32 = least.f32;
  c->half = least.half;
  c->launch = least.launch;
  c->half_efficiency = least.half_efficiency;
  c->attention_efficiency = least.attention_efficiency;
  c->dispatch = least.dispatch;
  c->dollars = least.dollars;
}

// Devices with the same adapter have the same `across`.
static bool check_adapters(const LuaTable *t, const Cluster *c, Diag *d) {
  bool ok = true;
  for (int i = 1; c->nodes > 1 && i < cluster_devices(c); i++) {
    bool shared = cluster_nic(c, i) == cluster_nic(c, i - 1);
    if (!shared || link_equal(cluster_across(c, i), cluster_across(c, i - 1))) continue;
    int of = cluster_kind(c, i) ? cluster_kind(c, i) : cluster_kind(c, i - 1);
    ok = diag_error(d, t->at[of - 1].loc,
                    "devices %d and %d use the same adapter, so their 'across' must be the same",
                    i - 1, i);
  }
  return ok;
}

// Reads the list of kinds; an empty one changes nothing.
static bool read_kinds(const LuaField *f, Cluster *c, Arena *a, Diag *d) {
  if (f->kind != LUA_FILE_table)
    return diag_error(d, f->loc, "'devices' must be a list of %s", kind_text);
  int n = f->table->n;
  DeviceKind *kind = arena_array(a, DeviceKind, n);
  bool ok = true;
  for (int i = 0; i < n; i++)
    ok = read_kind(&f->table->at[i], c, &kind[i], a, d) && ok;
  if (!ok || !check_twice(f->table, kind, d)) return false;
  if (!n) return true;
  set_kinds(c, kind, n, a);
  set_least(c);
  return check_adapters(f->table, c, d);
}

// -- The file ------------------------------------------------------------------------------------

// The place of a field; that of `like` for a field that the named cluster gives.
static const Loc *field_loc(const LuaTable *t, const char *name) {
  const LuaField *f = find_field(t, name);
  return f ? f->loc : find_field(t, "like")->loc;
}

// The cluster before its fields are read: that of `like`, or one of unknown devices.
static bool read_like(const LuaTable *t, const char *path, Cluster *c, Arena *a, Diag *d) {
  const LuaField *like = find_field(t, "like");
  *c = (Cluster){.nodes = 1, .nics = 1};
  if (like) {
    if (like->kind != LUA_FILE_string)
      return diag_error(d, like->loc, "'like' must be the name of a cluster, such as \"h100:4x8\"");
    const Cluster *named = cluster_read_named(a, like->string, like->loc, d);
    if (!named) return false;
    *c = *named;
    // The file has the memory of whole devices.
    c->memory += c->reserve;
  }
  c->name = str_copy(a, path);
  return true;
}

const Cluster *cluster_read_file(Arena *a, const char *path, Diag *d) {
  const LuaTable *t = lua_file_read(a, path, d);
  if (!t) return NULL;
  const Loc *loc = loc_line(a, path, 0, 0);
  Cluster *c = arena_one(a, Cluster);
  // Every wrong field is reported.
  bool ok = read_like(t, path, c, a, d);
  const bool like = find_field(t, "like") != NULL;
  for (int i = 0; i < t->n; i++)
    ok = read_field(&t->at[i], c, a, d) && ok;
  if (!ok) return NULL;
  if (find_field(t, "gpus")) c->cpus = !c->gpus;
  // A node has no more adapters than devices, unless the file says so.
  if (like && !find_field(t, "nics") && c->nics > c->per_node) c->nics = c->per_node;
  // All fields are read: check those that are needed, and how they fit together.
  if (!c->per_node)
    ok = diag_error(d, loc, "'per_node' is missing, the number of devices of a node");
  if (!find_field(t, "inside") && !like)
    ok = diag_error(d, loc, "'inside' is missing, the links inside a node");
  if (c->nodes > 1 && !find_field(t, "across") && !like)
    ok = diag_error(d, loc, "'across' is missing, the links between nodes");
  if (ok && c->per_node > CLUSTER_DEVICES / c->nodes)
    ok = diag_error(d, field_loc(t, "per_node"), "these are more than %d devices", CLUSTER_DEVICES);
  if (ok && c->nics > c->per_node)
    ok = diag_error(d, field_loc(t, "nics"), "a node has %d adapters for %d devices", c->nics,
                    c->per_node);
  if (ok && c->reserve > 0) ok = take_reserve(c, &c->memory, field_loc(t, "reserve"), d);
  // Kinds come last: fields that they leave out have the cluster's values.
  const LuaField *devices = find_field(t, "devices");
  if (ok && devices) ok = read_kinds(devices, c, a, d);
  return ok ? c : NULL;
}
