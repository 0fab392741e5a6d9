// libogg, for the Recordings room.
#pragma once

#include <ogg/ogg.h>
