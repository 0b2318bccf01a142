// The C tests of a folder are one program, test_FOLDER, to which each file adds a group:
//
//     TEST_GROUP(gaps) {
//       const struct CMUnitTest tests[] = {…};
//       return cmocka_run_group_tests(tests, NULL, NULL);
//     }
//
// `test_unit gaps` runs it (groups.c); in ctest each group is a test, so one that crashes hides no
// other.

#ifndef TESTS_GROUPS_H
#define TESTS_GROUPS_H

#define TEST_GROUP(name)                                                                           \
  int group_##name(void);                                                                          \
  int group_##name(void)

extern const char *group_option; // the words after the group's name, or ""

#endif
