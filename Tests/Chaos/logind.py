"""logind, as far as pttd listens to it: a name on the bus, and the signal that the machine falls asleep or has woken."""
import dbus.bus
import dbus.lowlevel

NAME = "org.freedesktop.login1"


def tell(address, is_coming):
    """Says it and leaves the bus again; False when the bus does not answer."""
    try:
        connection = dbus.bus.BusConnection(address)
        connection.request_name(NAME)
        signal = dbus.lowlevel.SignalMessage("/org/freedesktop/login1", NAME + ".Manager", "PrepareForSleep")
        signal.append(dbus.Boolean(is_coming), signature="b")
        connection.send_message(signal)
        connection.flush()
        connection.close()
        return True
    except dbus.DBusException:
        return False
