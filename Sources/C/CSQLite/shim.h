// SQLite, for the records of a relay.
#pragma once

// The session extension, which records what a transaction changes. Debian's library has it.
#define SQLITE_ENABLE_SESSION 1
#define SQLITE_ENABLE_PREUPDATE_HOOK 1
#include <sqlite3.h>

// SQLITE_TRANSIENT is a number cast to a function pointer, which Swift does not import: SQLite copies what it is given.
static inline int ptt_sqlite_bind_text(sqlite3_stmt *statement, int index, const char *text, int byte_count) {
    return sqlite3_bind_text(statement, index, text, byte_count, SQLITE_TRANSIENT);
}

static inline int ptt_sqlite_bind_bytes(sqlite3_stmt *statement, int index, const void *bytes, int byte_count) {
    // Without an address it would be NULL.
    return byte_count == 0 ? sqlite3_bind_zeroblob(statement, index, 0)
                           : sqlite3_bind_blob(statement, index, bytes, byte_count, SQLITE_TRANSIENT);
}

// sqlite3_db_config is variadic. With this a misspelt column in double quotes is an error, and no text.
static inline int ptt_sqlite_refuse_double_quoted_text(sqlite3 *database) {
    int status = sqlite3_db_config(database, SQLITE_DBCONFIG_DQS_DML, 0, (int *)0);
    return status != SQLITE_OK ? status : sqlite3_db_config(database, SQLITE_DBCONFIG_DQS_DDL, 0, (int *)0);
}

// A conflict means that the database is not what the changes were made to: none of them is applied then.
static inline int ptt_sqlite_abort(void *context, int conflict, sqlite3_changeset_iter *changes) {
    (void)context, (void)conflict, (void)changes;
    return SQLITE_CHANGESET_ABORT;
}

static inline int ptt_sqlite_apply(sqlite3 *database, const void *bytes, int byte_count) {
    // It is only read, whatever its type.
    return sqlite3changeset_apply(database, byte_count, (void *)bytes, (int (*)(void *, const char *))0, ptt_sqlite_abort, (void *)0);
}
