/* JSON for the CNI executable: a strict checker, a reader of members, a writer.
 *
 * The checker takes exactly RFC 8259: one value, UTF-8 without BOM, no lone surrogates, nothing
 * behind it, at most JSON_DEPTH objects and lists inside one another. The reader works on text
 * that was checked and copies nothing: a value is the span of its own bytes. The writer never
 * produces invalid UTF-8, whatever it is given.
 */
#ifndef CALICO_JSON_H
#define CALICO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define JSON_DEPTH 512

/* Bytes somewhere else; not ended by NUL. */
struct text {
    const char *at;
    size_t length;
};

/* Memory: the first bytes are the program's own, which costs no call and no page of the kernel's
 * more than are used; what does not fit there is malloc's. */

#ifndef MEMORY_OWN
#ifdef __SANITIZE_ADDRESS__
#define MEMORY_OWN 16 /* none: the sanitizer watches what malloc gives */
#else
#define MEMORY_OWN (128 * 1024)
#endif
#endif

static struct {
    _Alignas(16) char bytes[MEMORY_OWN];
    size_t used;
    char *last;
} memory;

static inline bool memory_owns(const char *at)
{
    return at >= memory.bytes && at < memory.bytes + sizeof memory.bytes;
}

static inline void memory_free(char *at)
{
    if (!memory_owns(at)) {
        free(at);
    } else if (at == memory.last) {
        memory.used = (size_t)(at - memory.bytes);
        memory.last = NULL;
    }
}

static inline char *memory_get(size_t size)
{
    size_t from = (memory.used + 15) / 16 * 16;
    if (from >= sizeof memory.bytes || size > sizeof memory.bytes - from)
        return malloc(size);
    memory.used = from + size;
    return memory.last = memory.bytes + from;
}

/* `at`, of `old` bytes, in `size` bytes, in its place if it can be; NULL, and `at` stays. */
static inline char *memory_resize(char *at, size_t old, size_t size)
{
    if (at && !memory_owns(at))
        return realloc(at, size);
    size_t from = at ? (size_t)(at - memory.bytes) : 0;
    if (at && at == memory.last && size <= sizeof memory.bytes - from) {
        memory.used = from + size;
        return at;
    }
    char *made = memory_get(size);
    if (made && at) {
        memcpy(made, at, old < size ? old : size);
        memory_free(at);
    }
    return made;
}

/* Bytes that grow. After a failed allocation `failed` stays set and nothing more is added. */
struct buffer {
    char *at;
    size_t length, room;
    bool fixed, failed;
};

static inline struct text text_of(const char *string)
{
    return (struct text){string, strlen(string)};
}

static inline bool text_is(struct text text, const char *string)
{
    return text.length == strlen(string) && memcmp(text.at, string, text.length) == 0;
}

static inline bool buffer_reserve(struct buffer *buffer, size_t more)
{
    if (buffer->failed)
        return false;
    if (more <= buffer->room - buffer->length)
        return true;
    size_t room = buffer->room ? buffer->room : 256;
    while (room - buffer->length < more)
        room *= 2;
    char *at = buffer->fixed ? NULL : memory_resize(buffer->at, buffer->length, room);
    if (!at) {
        buffer->failed = true;
        return false;
    }
    buffer->at = at;
    buffer->room = room;
    return true;
}

static inline void buffer_free(struct buffer *buffer)
{
    memory_free(buffer->at);
    *buffer = (struct buffer){0};
}

/* Give back the room that is not filled. */
static inline void buffer_trim(struct buffer *buffer)
{
    if (memory_owns(buffer->at) && buffer->at == memory.last && buffer->length > 0) {
        memory_resize(buffer->at, buffer->length, buffer->length);
        buffer->room = buffer->length;
    }
}

static inline void buffer_add(struct buffer *buffer, const char *bytes, size_t length)
{
    if (length == 0 || !buffer_reserve(buffer, length))
        return;
    memcpy(buffer->at + buffer->length, bytes, length);
    buffer->length += length;
}

static inline void buffer_put(struct buffer *buffer, const char *string)
{
    buffer_add(buffer, string, strlen(string));
}

/* Length of the UTF-8 character at `at`, or 0 when the bytes are not one. */
static inline size_t utf8_length(const char *at, size_t left)
{
    const unsigned char *byte = (const unsigned char *)at;
    if (left == 0)
        return 0;
    if (byte[0] < 0x80)
        return 1;
    size_t length = byte[0] >= 0xf0 ? 4 : byte[0] >= 0xe0 ? 3 : 2;
    if (byte[0] < 0xc2 || byte[0] > 0xf4 || left < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((byte[i] & 0xc0) != 0x80)
            return 0;
    if ((byte[0] == 0xe0 && byte[1] < 0xa0) || (byte[0] == 0xed && byte[1] > 0x9f) ||
        (byte[0] == 0xf0 && byte[1] < 0x90) || (byte[0] == 0xf4 && byte[1] > 0x8f))
        return 0;
    return length;
}

static inline bool utf8_valid(const char *at, size_t length)
{
    for (size_t i = 0, step; i < length; i += step)
        if ((step = utf8_length(at + i, length - i)) == 0)
            return false;
    return true;
}

/* Checking */

struct json {
    const char *start, *at, *end;
    const char *why;
    int depth;
};

static inline bool json_fail(struct json *json, const char *why)
{
    if (!json->why)
        json->why = why;
    return false;
}

static inline void json_space(struct json *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

static inline bool json_take(struct json *json, char byte)
{
    if (json->at >= json->end || *json->at != byte)
        return false;
    json->at++;
    return true;
}

static inline int json_hex(const char *at, const char *end)
{
    int value = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static inline bool json_escape(struct json *json)
{
    if (json->at >= json->end)
        return json_fail(json, "unexpected end");
    char c = *json->at++;
    if (c != 'u')
        return (c != '\0' && strchr("\"\\/bfnrt", c)) || json_fail(json, "invalid escape");
    int high = json_hex(json->at, json->end);
    if (high < 0 || (high >= 0xdc00 && high <= 0xdfff))
        return json_fail(json, "invalid \\u escape");
    json->at += 4;
    if (high < 0xd800 || high > 0xdbff)
        return true;
    int low = json->end - json->at >= 6 && json->at[0] == '\\' && json->at[1] == 'u'
                  ? json_hex(json->at + 2, json->end)
                  : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return json_fail(json, "lone surrogate");
    json->at += 6;
    return true;
}

static inline bool json_string(struct json *json)
{
    if (!json_take(json, '"'))
        return json_fail(json, "expected a string");
    while (json->at < json->end) {
        unsigned char c = (unsigned char)*json->at;
        if (c == '"') {
            json->at++;
            return true;
        }
        if (c == '\\') {
            json->at++;
            if (!json_escape(json))
                return false;
            continue;
        }
        if (c < 0x20)
            return json_fail(json, "control character in a string");
        size_t step = utf8_length(json->at, (size_t)(json->end - json->at));
        if (step == 0)
            return json_fail(json, "not UTF-8");
        json->at += step;
    }
    return json_fail(json, "unexpected end");
}

static inline bool json_digits(struct json *json)
{
    const char *from = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return json->at > from || json_fail(json, "invalid number");
}

static inline bool json_number(struct json *json)
{
    json_take(json, '-');
    if (!json_take(json, '0') && !json_digits(json))
        return false;
    if (json_take(json, '.') && !json_digits(json))
        return false;
    if (json_take(json, 'e') || json_take(json, 'E')) {
        if (!json_take(json, '+'))
            json_take(json, '-');
        return json_digits(json);
    }
    return true;
}

static inline bool json_word(struct json *json, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(json->end - json->at) < length || memcmp(json->at, word, length) != 0)
        return json_fail(json, "invalid character");
    json->at += length;
    return true;
}

static inline bool json_value(struct json *json);

static inline bool json_container(struct json *json, char close, bool keys)
{
    json->at++;
    if (++json->depth > JSON_DEPTH)
        return json_fail(json, "nested too deeply");
    json_space(json);
    if (!json_take(json, close)) {
        do {
            json_space(json);
            if (keys) {
                if (!json_string(json))
                    return false;
                json_space(json);
                if (!json_take(json, ':'))
                    return json_fail(json, "expected a colon");
                json_space(json);
            }
            if (!json_value(json))
                return false;
            json_space(json);
        } while (json_take(json, ','));
        if (!json_take(json, close))
            return json_fail(json, json->at < json->end ? "invalid character" : "unexpected end");
    }
    json->depth--;
    return true;
}

static inline bool json_value(struct json *json)
{
    if (json->at >= json->end)
        return json_fail(json, "unexpected end");
    switch (*json->at) {
    case '{': return json_container(json, '}', true);
    case '[': return json_container(json, ']', false);
    case '"': return json_string(json);
    case 't': return json_word(json, "true");
    case 'f': return json_word(json, "false");
    case 'n': return json_word(json, "null");
    case '-': case '0': case '1': case '2': case '3': case '4':
    case '5': case '6': case '7': case '8': case '9': return json_number(json);
    default: return json_fail(json, "invalid character");
    }
}

/* Whether `text` is one JSON value; `value` is its span without surrounding space. On failure
 * `why` says what is wrong and `offset` where. */
static inline bool json_check(struct text text, struct text *value, const char **why,
                              size_t *offset)
{
    struct json json = {.start = text.at, .at = text.at, .end = text.at + text.length};
    json_space(&json);
    const char *from = json.at;
    bool good = json_value(&json);
    *value = (struct text){from, (size_t)(json.at - from)};
    json_space(&json);
    if (good && json.at < json.end)
        good = json_fail(&json, "data after the end");
    *why = json.why;
    *offset = (size_t)(json.at - json.start);
    return good;
}

/* Reading: of text that json_check accepted. */

static inline bool json_decode(struct text quoted, struct buffer *out);

/* Step to the next member of an object. `*at` starts as 0; false after the last. */
static inline bool json_next(struct text object, size_t *at, struct text *key, struct text *value)
{
    struct json json = {.start = object.at, .at = object.at + (*at ? *at : 1),
                        .end = object.at + object.length};
    json_space(&json);
    json_take(&json, ',');
    json_space(&json);
    key->at = json.at;
    if (json.at >= json.end || *json.at != '"' || !json_string(&json))
        return false;
    key->length = (size_t)(json.at - key->at);
    json_space(&json);
    json_take(&json, ':');
    json_space(&json);
    value->at = json.at;
    if (!json_value(&json))
        return false;
    value->length = (size_t)(json.at - value->at);
    *at = (size_t)(json.at - object.at);
    return true;
}

/* Whether a quoted string says `string`, however it is escaped. */
static inline bool json_says(struct text quoted, const char *string)
{
    struct text inner = {quoted.at + 1, quoted.length - 2};
    if (!memchr(inner.at, '\\', inner.length))
        return text_is(inner, string);
    struct buffer plain = {0};
    bool same = json_decode(quoted, &plain) &&
                text_is((struct text){plain.at, plain.length}, string);
    buffer_free(&plain);
    return same;
}

/* The value of `key`; false when it is missing or null. The last of duplicates counts. */
static inline bool json_get(struct text object, const char *key, struct text *value)
{
    struct text name, found;
    bool known = false;
    for (size_t at = 0; json_next(object, &at, &name, &found);)
        if (json_says(name, key)) {
            *value = found;
            known = *found.at != 'n';
        }
    return known;
}

static inline void utf8_put(struct buffer *out, unsigned point)
{
    char bytes[4];
    size_t length = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char mark[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length; i-- > 1; point >>= 6)
        bytes[i] = (char)(0x80 | (point & 0x3f));
    bytes[0] = (char)(mark[length == 1 ? 0 : length] | point);
    buffer_add(out, bytes, length);
}

/* Append what a quoted string says; false when memory ran out. */
static inline bool json_decode(struct text quoted, struct buffer *out)
{
    static const char letter[] = "bfnrt", plain[] = "\b\f\n\r\t";
    const char *at = quoted.at + 1, *end = quoted.at + quoted.length - 1;
    buffer_reserve(out, quoted.length);
    while (at < end) {
        const char *from = at;
        while (at < end && *at != '\\')
            at++;
        buffer_add(out, from, (size_t)(at - from));
        if (at >= end)
            break;
        at++;
        char c = *at++;
        const char *known = strchr(letter, c);
        if (c == 'u') {
            unsigned point = (unsigned)json_hex(at, end);
            at += 4;
            if (point >= 0xd800 && point <= 0xdbff) {
                unsigned low = (unsigned)json_hex(at + 2, end);
                point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
                at += 6;
            }
            utf8_put(out, point);
        } else {
            buffer_add(out, known ? plain + (known - letter) : &c, 1);
        }
    }
    return !out->failed;
}

/* Writing */

/* Append `text` as a quoted string; bytes that are not UTF-8 become U+FFFD. */
static inline void json_quote(struct buffer *out, struct text text)
{
    static const char hex[] = "0123456789abcdef";
    buffer_put(out, "\"");
    for (size_t i = 0; i < text.length;) {
        size_t from = i;
        while (i < text.length) {
            unsigned char c = (unsigned char)text.at[i];
            bool special = c < 0x20 || c == '"' || c == '\\';
            size_t step = special ? 0 : utf8_length(text.at + i, text.length - i);
            if (step == 0)
                break;
            i += step;
        }
        buffer_add(out, text.at + from, i - from);
        if (i >= text.length)
            break;
        unsigned char c = (unsigned char)text.at[i++];
        if (c == '"' || c == '\\')
            buffer_add(out, (char[]){'\\', (char)c}, 2);
        else if (c == '\n')
            buffer_put(out, "\\n");
        else if (c == '\t')
            buffer_put(out, "\\t");
        else if (c < 0x20)
            buffer_add(out, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
        else
            buffer_put(out, "\xef\xbf\xbd");
    }
    buffer_put(out, "\"");
}

#endif
