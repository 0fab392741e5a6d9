// libevdev, for the LinuxInput room.
#pragma once

#include <libevdev/libevdev.h>
#include <linux/input.h>
