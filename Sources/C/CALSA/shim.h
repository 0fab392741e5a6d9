// alsa-lib, for the Audio room.
#pragma once

#include <alsa/asoundlib.h>
