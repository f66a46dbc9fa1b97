/* Text that grows: whole at any length, and without writes that follow one that found no memory;
 * messages are UTF-8 whatever they quote. */
#include <string.h>

#include "check.h"
#include "lib/base/status.h"
#include "lib/base/text.h"

static int memory_is_short;

/* The build reads the second column. */
/* clang-format off */
#define WRAPS(WRAP) \
    WRAP(OWN, malloc, void *, (size_t bytes))
/* clang-format on */
#define WRAP(kind, name, result, parameters) \
    extern result __real_##name parameters;  \
    extern result __wrap_##name parameters;
WRAPS(WRAP)
#undef WRAP

void *__wrap_malloc(size_t bytes)
{
    return memory_is_short ? NULL : __real_malloc(bytes);
}

/* Pieces of every length up to some hundred characters, whose ends meet those of the room at one
 * time or another. */
static void test_text_is_what_was_written(void)
{
    enum { PIECES = 400, MOST = PIECES * PIECES };
    static char expected[MOST];
    char piece[PIECES + 1];
    gpr_text text = {0};
    size_t length = 0;

    for (int i = 0; i < PIECES; i++) {
        const size_t count = (size_t)check_between(0, PIECES - 1);
        memset(piece, 'a' + i % 26, count);
        piece[count] = '\0';
        gpr_text_add(&text, "%s", piece);
        memcpy(expected + length, piece, count);
        length += count;
        CHECK(text.length == length && text.room > length && strlen(text.text) == length,
              "piece %d", i);
    }
    CHECK(gpr_text_status(&text) == GPR_OK && memcmp(text.text, expected, length) == 0, "text");
    gpr_text_clear(&text);
    CHECK(text.text == NULL && text.length == 0, "cleared");
    gpr_text_add(&text, "%s of %d", "one", 2);
    CHECK(strcmp(text.text, "one of 2") == 0, "%s", text.text);
    gpr_text_clear(&text);
}

static void test_text_without_memory_is_an_error(void)
{
    enum { LONG = 10000 };
    gpr_text text = {0};

    memory_is_short = 1;
    gpr_text_add(&text, "a");
    CHECK(gpr_text_status(&text) == GPR_ERROR_MEMORY && text.text == NULL, "the first write");
    gpr_text_clear(&text);
    memory_is_short = 0;
    gpr_text_add(&text, "a");
    memory_is_short = 1;
    gpr_text_add(&text, "%*d", LONG, 1);
    memory_is_short = 0;
    gpr_text_add(&text, "b");
    CHECK(gpr_text_status(&text) == GPR_ERROR_MEMORY && strcmp(text.text, "a") == 0,
          "a later write");
    CHECK(strstr(gpr_last_error()->message, "out of memory") != NULL, "%s",
          gpr_last_error()->message);
    gpr_text_clear(&text);
    CHECK(gpr_text_status(&text) == GPR_OK, "a cleared text");
}

/* Characters of one to four bytes stay; each byte that is part of none becomes '?'. */
static void test_messages_are_utf8(void)
{
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xf4\x8f\xbf\xbf\xed\x9f\xbf", "\xf4\x8f\xbf\xbf\xed\x9f\xbf"},
        {"a\x80z", "a?z"},                     /* nothing begins so */
        {"a\xf8\x88\x80\x80\x80z", "a?????z"}, /* nor so */
        {"a\xffz", "a?z"},
        {"a\xc3z", "a?z"},    /* ends too early */
        {"a\xe2\x82", "a??"}, /* at the end, too */
        {"\xc0\xaf", "??"},   /* longer than needed */
        {"\xe0\x9f\xbf", "???"},
        {"\xf0\x8f\xbf\xbf", "????"},
        {"\xed\xa0\x80", "???"},      /* half of a pair */
        {"\xf4\x90\x80\x80", "????"}, /* beyond the last */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)gpr_fail(GPR_ERROR_VALUE, "%s", cases[i][0]);
        CHECK(strcmp(gpr_last_error()->message, cases[i][1]) == 0, "case %d: %s", (int)i,
              gpr_last_error()->message);
    }
}

int main(void)
{
    check_begin();
    test_text_is_what_was_written();
    test_text_without_memory_is_an_error();
    test_messages_are_utf8();
    return check_end();
}
