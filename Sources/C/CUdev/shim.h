// libudev, for the LinuxInput room.
#pragma once

#include <libudev.h>
