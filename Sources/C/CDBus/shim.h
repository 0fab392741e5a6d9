// libdbus-1, for the DBus room.
#pragma once

#include <dbus/dbus.h>
