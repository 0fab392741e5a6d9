// The events of BlueZ.
import MonotonicTime

/// Something that happened. Events come in an order that makes sense: an object is added before anything happens to it
/// and removed after everything below it; a connected device is reported disconnected before it is removed.
public enum BlueZEvent: Hashable, Sendable {
    /// bluetoothd is there; what exists has been reported by the events before this one.
    case available
    /// bluetoothd or the bus is gone; everything has been reported removed by the events before this one.
    case unavailable

    /// An adapter is there.
    case adapterAdded(Adapter)
    /// An adapter was switched on or off, or another property changed.
    case adapterChanged(Adapter)
    /// An adapter was switched on or off. It follows `adapterChanged`, and for those that are on `adapterAdded`.
    case adapterPowered(AdapterIdentifier, Bool)
    /// An adapter is gone.
    case adapterRemoved(AdapterIdentifier)

    /// A device is known.
    case deviceAdded(Device)
    /// A property of a device changed.
    case deviceChanged(Device)
    /// A device was heard with unchanged signal strength. BlueZ reports each advertisement when a discovery asks for
    /// duplicates.
    case deviceHeard(DeviceIdentifier)
    /// A device has a link. Also reported for those that have one when they are first seen.
    case deviceConnected(DeviceIdentifier)
    /// A device has no link any more.
    case deviceDisconnected(DeviceIdentifier, DisconnectReason)
    /// A device's services became usable, or cease to be. Characteristics may still follow `true`, and BlueZ may
    /// take it back and say it again: act on characteristics.
    case servicesResolved(DeviceIdentifier, Bool)
    /// A device's charge in per cent; nil: unknown again.
    case batteryChanged(DeviceIdentifier, UInt8?)
    /// The connection to a device's personal area network has ended.
    case networkDisconnected(DeviceIdentifier)
    /// A device is forgotten.
    case deviceRemoved(DeviceIdentifier)

    /// A characteristic is there, with its service known.
    case characteristicAdded(Characteristic)
    /// Whether a characteristic notifies changed.
    case notifyingChanged(CharacteristicIdentifier, Bool)
    /// A notification or indication, or a value that some program read: its bytes, also when equal to those before,
    /// and when they were taken off the bus.
    case valueChanged(CharacteristicIdentifier, [UInt8], at: Instant)
    /// A device sends more values per second than are read; only the newest ones count from now on. nil: the flood has
    /// ended.
    case flooding(DeviceIdentifier, perSecond: Int?)
    /// A characteristic is gone.
    case characteristicRemoved(CharacteristicIdentifier)

    /// Known devices with the wanted services now reconnect by themselves on this adapter.
    case reconnectionArmed(AdapterIdentifier)
    /// They do not, and why. Tried again later.
    case reconnectionFailed(AdapterIdentifier, BlueZError)
}
