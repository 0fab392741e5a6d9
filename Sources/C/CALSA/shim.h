// alsa-lib, for the Audio room.
#pragma once

// As in CLinux: else the two modules see different shapes of fd_set.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <alsa/asoundlib.h>
