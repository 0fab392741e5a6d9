// libspeexdsp, for the Audio room.
#pragma once

#include <speex/speex_resampler.h>
