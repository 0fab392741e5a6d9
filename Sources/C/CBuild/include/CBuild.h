// What the build alone knows of itself. Package.swift hands it over; it is no secret and no measure of time, so that it
// keeps no two builds of one commit from being identical.
#pragma once

/// The commit that is built; empty where nobody said.
const char *ptt_build_commit(void);
