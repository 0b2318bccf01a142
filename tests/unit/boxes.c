// Moves compared with brute force, element by element, between layouts of small tensors on small
// meshes.  `test_unit boxes all` takes every pair of layouts, without `all` it is every 11th.

#include "unit.h"

#include "ir/analysis/boxes.h"

enum { MOST = 64 /* elements of a tensor, and of a part */, MAX_SHARES = 8 };

// Devices and axes; time axes included.
static const Mesh meshes[] = {
    {.name = "two", .n_axes = 1, .axis = {{"a", 2, 0}}, .n_devices = 2, .device = (int[]){0, 1}},
    {.name = "back", .n_axes = 1, .axis = {{"a", 2, 0}}, .n_devices = 2, .device = (int[]){1, 0}},
    {.name = "three",
     .n_axes = 1,
     .axis = {{"a", 3, 0}},
     .n_devices = 3,
     .device = (int[]){1, 2, 3}},
    {.name = "four",
     .n_axes = 2,
     .axis = {{"a", 2, 0}, {"b", 2, 0}},
     .n_devices = 4,
     .device = (int[]){3, 0, 7, 1}},
    {.name = "line",
     .n_axes = 1,
     .axis = {{"a", 4, 0}},
     .n_devices = 4,
     .device = (int[]){0, 1, 2, 3}},
    {.name = "six",
     .n_axes = 2,
     .axis = {{"a", 3, 0}, {"b", 2, 0}},
     .n_devices = 6,
     .device = (int[]){0, 2, 4, 1, 3, 5}},
    {.name = "eight",
     .n_axes = 3,
     .axis = {{"a", 2, 0}, {"b", 2, 0}, {"c", 2, 0}},
     .n_devices = 8,
     .device = (int[]){0, 1, 2, 3, 4, 5, 6, 7}},
    {.name = "slices",
     .n_axes = 2,
     .axis = {{"t", 2, 1}, {"a", 2, 0}},
     .n_devices = 2,
     .device = (int[]){0, 1}},
    {.name = "within",
     .n_axes = 2,
     .axis = {{"a", 2, 0}, {"t", 2, 1}},
     .n_devices = 2,
     .device = (int[]){4, 0}},
    {.name = "finer",
     .n_axes = 3,
     .axis = {{"a", 2, 0}, {"t", 2, 1}, {"b", 2, 0}},
     .n_devices = 4,
     .device = (int[]){0, 1, 2, 3}},
};
enum { N_MESHES = sizeof meshes / sizeof *meshes };

static const Type shapes[] = {
    {DT_f32, 1, {24}},      {DT_f32, 2, {12, 4}}, {DT_f32, 2, {4, 12}},
    {DT_f32, 3, {4, 2, 6}}, {DT_f32, 0, {0}},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

// Constructs the `number`th layout of `t` on the mesh; *fits: it divides the dimensions.  Returns
// false after the last number.
static bool nth_layout(const Mesh *mesh, const Type *t, int number, Layout *l, bool *fits) {
  *l = (Layout){.mesh = mesh, .n_axes = mesh->n_axes};
  int64_t left[MAX_NDIM];
  *fits = true;
  for (int d = 0; d < t->ndim; d++)
    left[d] = t->dim[d];
  for (int i = 0; i < mesh->n_axes; i++) {
    int kind = number % (t->ndim + 2);
    number /= t->ndim + 2;
    l->axis[i] = kind == 0 ? (Sbp){SBP_B, 0} : kind == 1 ? (Sbp){SBP_P, 0} : (Sbp){SBP_S, kind - 2};
    if (kind < 2) continue;
    *fits &= left[kind - 2] % mesh->axis[i].size == 0;
    left[kind - 2] /= mesh->axis[i].size;
  }
  return number == 0;
}

// A shard: the global index of each of its elements, and its share and copy.  Shards with the same
// share hold equal elements in all copies.
typedef struct Part {
  int64_t n, element[MOST];
  Region region;
  int share, copy, device;
} Part;

static Part part_at(const Type *t, const Layout *l, int position, int slice) {
  Place at = mesh_place(l->mesh, position, slice);
  Part p = {.n = 1, .region = place_region(t, l, &at), .device = l->mesh->device[position]};
  for (int d = 0; d < t->ndim; d++)
    p.n *= p.region.size[d];
  assert_true(p.n <= MOST);
  for (int64_t i = 0; i < p.n; i++) {
    int64_t rest = i, index[MAX_NDIM];
    for (int d = t->ndim - 1; d >= 0; d--) {
      index[d] = p.region.start[d] + rest % p.region.size[d];
      rest /= p.region.size[d];
    }
    for (int d = 0; d < t->ndim; d++)
      p.element[i] = p.element[i] * t->dim[d] + index[d];
  }
  for (int i = 0; i < l->n_axes; i++) {
    if (l->mesh->axis[i].time) continue;
    if (l->axis[i].kind == SBP_P) p.share = p.share * l->mesh->axis[i].size + at.coord[i];
    if (l->axis[i].kind == SBP_B) p.copy = p.copy * l->mesh->axis[i].size + at.coord[i];
  }
  return p;
}

// Returns the index in a shard of element `i` of the message's box.
static int64_t place_in(const Type *t, const Message *m, const int64_t *start, const Part *p,
                        int64_t i) {
  int64_t at = 0, index[MAX_NDIM];
  for (int d = t->ndim - 1; d >= 0; d--) {
    index[d] = start[d] + i % m->size[d];
    i /= m->size[d];
    assert_true(index[d] < p->region.size[d]);
  }
  for (int d = 0; d < t->ndim; d++)
    at = at * p->region.size[d] + index[d];
  return at;
}

static int shares_of(const Layout *l) {
  int n = 1;
  for (int i = 0; i < l->n_axes; i++)
    if (l->axis[i].kind == SBP_P && !l->mesh->axis[i].time) n *= l->mesh->axis[i].size;
  return n;
}

static int position_of(const Mesh *mesh, int device) {
  for (int i = 0; i < mesh->n_devices; i++)
    if (mesh->device[i] == device) return i;
  return -1;
}

// The number of transfers of each source share of each element, for each copy of the target.
typedef struct Count {
  int of[8][MAX_SHARES][MOST]; // [copy][share before][element]
} Count;

static void count_message(const Type *t, const Layout *from, const Layout *to, const Message *m,
                          int slice, Count *count) {
  int sends = position_of(from->mesh, m->from), gets = position_of(to->mesh, m->to);
  assert_true(sends >= 0 && gets >= 0);
  Part x = part_at(t, from, sends, slice), y = part_at(t, to, gets, slice);
  assert_int_equal(m->share, x.share);
  int own = position_of(from->mesh, m->to);
  Part had = own >= 0 ? part_at(t, from, own, slice) : (Part){0};
  for (int64_t i = 0, n = message_bytes(m, t) / 4; i < n; i++) {
    int64_t element = x.element[place_in(t, m, m->at_from, &x, i)];
    assert_int_equal(element, y.element[place_in(t, m, m->at_to, &y, i)]);
    count->of[y.copy][m->share][element]++;
    bool has = false; // an element that the device has already is not received from another one
    for (int64_t k = 0; k < had.n && had.share == m->share; k++)
      has |= had.element[k] == element;
    assert_true(!has || m->from == m->to);
  }
}

// Marks the elements that the devices hold in this slice.
static void elements_at(const Type *t, const Layout *l, int slice, bool *there) {
  memset(there, 0, MOST * sizeof *there);
  for (int p = 0; p < l->mesh->n_devices; p++) {
    Part part = part_at(t, l, p, slice);
    for (int64_t i = 0; i < part.n; i++)
      there[part.element[i]] = true;
  }
}

static bool is_there_already(const Type *t, const Messages *messages, const Layout *to,
                             const Layout *from) {
  bool *got = calloc((size_t)to->mesh->n_devices, sizeof *got), all = true;
  for (int i = 0; i < messages->n; i++) {
    const Message *m = &messages->at[i];
    Part x = part_at(t, from, position_of(from->mesh, m->from), 0);
    int gets = position_of(to->mesh, m->to);
    Part y = part_at(t, to, gets, 0);
    all &= m->from == m->to && x.n == y.n && message_bytes(m, t) / 4 == x.n && !got[gets];
    got[gets] = true;
  }
  for (int i = 0; i < to->mesh->n_devices; i++)
    all &= got[i];
  free(got);
  return all;
}

static void check_move(const Type *t, const Layout *from, const Layout *to, Arena *a) {
  static Count count;
  Messages messages;
  move_messages(t, from, to, NULL, a, &messages);
  assert_int_equal(move_stays(t, from, to), is_there_already(t, &messages, to, from));
  int64_t moved = 0;
  for (int i = 0; i < messages.n; i++)
    if (messages.at[i].from != messages.at[i].to) moved += message_bytes(&messages.at[i], t) / 4;
  assert_int_equal(move_elements(t, from, to), moved);
  int copies = to->mesh->n_devices / shares_of(to);
  for (int slice = 0; slice < 2; slice++) {
    bool before[MOST], after[MOST];
    elements_at(t, from, slice, before);
    elements_at(t, to, slice, after);
    assert_memory_equal(before, after, sizeof before);
    memset(&count, 0, sizeof count);
    for (int i = 0; i < messages.n; i++)
      count_message(t, from, to, &messages.at[i], slice, &count);
    int n_copies = 0;
    for (int p = 0; p < to->mesh->n_devices; p++) {
      Part part = part_at(t, to, p, slice);
      if (part.copy >= n_copies) n_copies = part.copy + 1;
    }
    assert_true(n_copies <= copies);
    for (int copy = 0; copy < n_copies; copy++)
      for (int share = 0; share < shares_of(from); share++)
        for (int64_t i = 0; i < type_count(t); i++)
          assert_int_equal(count.of[copy][share][i], before[i]);
  }
  for (int i = 1; i < messages.n; i++)
    if (messages.at[i].to == messages.at[i - 1].to)
      assert_true(messages.at[i].share >= messages.at[i - 1].share);
}

static int stride = 11;

static void every_share_of_every_element_comes_once(void **state) {
  (void)state;
  int pairs = 0, checked = 0;
  for (int s = 0; s < N_SHAPES; s++)
    for (int from = 0; from < N_MESHES; from++)
      for (int to = 0; to < N_MESHES; to++) {
        Layout x, y;
        bool x_fits, y_fits;
        Arena *a = arena_new();
        for (int i = 0; nth_layout(&meshes[from], &shapes[s], i, &x, &x_fits); i++)
          for (int k = 0; x_fits && nth_layout(&meshes[to], &shapes[s], k, &y, &y_fits); k++)
            if (y_fits && same_in_time(&x, &y) && pairs++ % stride == 0) {
              check_move(&shapes[s], &x, &y, a);
              checked++;
            }
        arena_free(a);
      }
  print_message("%d moves\n", checked);
  assert_true(checked > 50000 / stride);
}

// -- Examples ----------------------------------------------------------------------------------

static Layout layout_on(const Mesh *mesh, Sbp a, Sbp b) {
  return (Layout){.mesh = mesh, .n_axes = mesh->n_axes, .axis = {a, b}};
}

static int sent_by(const Messages *messages, int device) {
  int n = 0;
  for (int i = 0; i < messages->n; i++)
    n += messages->at[i].from == device && messages->at[i].to != device;
  return n;
}

// Four copies, and four devices without one: each copy is sent to one of them.
static void copies_share_the_work(void **state) {
  (void)state;
  Mesh to = meshes[4];
  to.device = (int[]){10, 11, 12, 13};
  Layout x = layout_on(&meshes[4], (Sbp){SBP_B, 0}, (Sbp){0}),
         y = layout_on(&to, (Sbp){SBP_B, 0}, (Sbp){0});
  Arena *a = arena_new();
  Messages messages;
  move_messages(&shapes[0], &x, &y, NULL, a, &messages);
  for (int device = 0; device < 4; device++)
    assert_int_equal(sent_by(&messages, device), 1);
  arena_free(a);
}

// Devices 0 and 1 are in one node, 2 and 3 in the next, and so on.
static int nodes_apart(const void *per_node, int from, int to) {
  int n = *(const int *)per_node;
  return from / n != to / n;
}

static void the_nearest_copy_is_taken(void **state) {
  (void)state;
  Mesh from = meshes[0], to = meshes[0];
  from.device = (int[]){0, 2};
  to.device = (int[]){3, 1};
  Layout x = layout_on(&from, (Sbp){SBP_B, 0}, (Sbp){0}),
         y = layout_on(&to, (Sbp){SBP_S, 0}, (Sbp){0});
  Arena *a = arena_new();
  Messages messages;
  move_messages(&shapes[0], &x, &y, &(Distance){nodes_apart, &(int){2}}, a, &messages);
  assert_int_equal(messages.n, 2);
  assert_int_equal(messages.at[0].from, 2);
  assert_int_equal(messages.at[0].to, 3);
  assert_int_equal(messages.at[1].from, 0);
  assert_int_equal(messages.at[1].to, 1);
  arena_free(a);
}

// The same devices in another order: the shares need no transfer.
static void shares_stay_on_their_devices(void **state) {
  (void)state;
  Layout x = layout_on(&meshes[0], (Sbp){SBP_P, 0}, (Sbp){0}),
         y = layout_on(&meshes[1], (Sbp){SBP_P, 0}, (Sbp){0});
  assert_true(move_stays(&shapes[0], &x, &y));
  y.axis[0] = (Sbp){SBP_B, 0};
  assert_false(move_stays(&shapes[0], &x, &y));
}

// Time slices have rows 0-11 and 12-23.  If device axes split the rows before or after time, slices
// have different rows.
static void a_slice_must_be_the_same_rows(void **state) {
  (void)state;
  Sbp rows = {SBP_S, 0}, whole = {SBP_B, 0};
  Layout x = layout_on(&meshes[7], rows, rows), y = layout_on(&meshes[8], rows, rows);
  assert_false(same_in_time(&x, &y));
  x.axis[1] = y.axis[0] = whole;
  assert_true(same_in_time(&x, &y));
  Layout z = layout_on(&meshes[0], rows, (Sbp){0});
  assert_false(same_in_time(&x, &z));
  x.axis[0] = whole;
  assert_true(same_in_time(&x, &z));
  x.axis[0] = (Sbp){SBP_P, 0}; // each slice has a share of the sum
  assert_false(same_in_time(&x, &z));
}

// Between neighbours along an axis only its coordinate changes, by one, at any position of a time
// axis.
static void a_stride_is_a_step_along_its_axis(void **state) {
  (void)state;
  for (int m = 0; m < N_MESHES; m++)
    for (int axis = 0; axis < meshes[m].n_axes; axis++)
      for (int at = 0; at < meshes[m].n_devices; at++) {
        Place from = mesh_place(&meshes[m], at, 0);
        if (meshes[m].axis[axis].time || from.coord[axis] + 1 == meshes[m].axis[axis].size)
          continue;
        int next = at + mesh_stride(&meshes[m], axis);
        assert_in_range(next, 0, meshes[m].n_devices - 1);
        Place to = mesh_place(&meshes[m], next, 0);
        for (int i = 0; i < meshes[m].n_axes; i++)
          assert_int_equal(to.coord[i], from.coord[i] + (i == axis));
      }
}

TEST_GROUP(boxes) {
  if (str_equal(group_option, "all")) stride = 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_share_of_every_element_comes_once),
      cmocka_unit_test(copies_share_the_work),
      cmocka_unit_test(the_nearest_copy_is_taken),
      cmocka_unit_test(shares_stay_on_their_devices),
      cmocka_unit_test(a_slice_must_be_the_same_rows),
      cmocka_unit_test(a_stride_is_a_step_along_its_axis),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
