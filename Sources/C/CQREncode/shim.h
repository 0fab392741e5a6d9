// libqrencode, for the invitations that pttrelay shows in the terminal.
#pragma once

#include <qrencode.h>
