// libbluetooth, for what BlueZ's D-Bus interface cannot do.
#pragma once

#include <bluetooth/bluetooth.h>
#include <bluetooth/hci.h>
#include <bluetooth/hci_lib.h>
