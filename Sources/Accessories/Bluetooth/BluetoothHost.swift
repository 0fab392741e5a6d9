// The part of BlueZ that this module needs; tests put another in its place.
import BlueZ
import MonotonicTime

/// What the system's Bluetooth tells, on the loop, in order.
package enum BluetoothReport: Sendable {
    /// There is Bluetooth, or there is not. When it comes back the devices are told before.
    case radio(RadioState)
    /// A device is new or different.
    case device(DeviceFacts)
    /// Known devices are reconnected by BlueZ itself, or no longer.
    case autoConnect(isArmed: Bool)
    /// BlueZ forgot a device.
    case deviceRemoved(DeviceIdentifier)
    /// Bytes of a stream came, at this time.
    case streamBytes(device: DeviceIdentifier, StreamKind, [UInt8], at: Instant)
    /// A stream that was open has ended.
    case streamClosed(device: DeviceIdentifier, StreamKind)
    /// A device that a stream was asked of has connected it by itself: `openStream` takes it.
    case streamOffered(device: DeviceIdentifier, StreamKind)
    /// A device was heard while a scan is on, and how strongly (dBm).
    case heard(device: DeviceIdentifier, signalStrength: Int)
    /// A characteristic's value came, at this time.
    case value(characteristic: CharacteristicIdentifier, bytes: [UInt8], at: Instant)
    /// A characteristic was read for us, and this was its value.
    case read(characteristic: CharacteristicIdentifier, bytes: [UInt8])
    /// A device sends more values a second than are looked at; nil: not any more.
    case flooding(device: DeviceIdentifier, valuesPerSecond: Int?)

    /// When it came, where that has to be exact.
    var time: Instant? {
        switch self {
        case .value(_, _, let time), .streamBytes(_, _, _, let time): time
        default: nil
        }
    }
}

/// The system's Bluetooth.
protocol BluetoothHost: Actor {
    /// Reports what is there, and then every change.
    func start(_ handler: @escaping @Sendable (BluetoothReport) -> Void) async throws(BlueZError)
    /// Reports no more, and takes back what was registered.
    func stop() async
    /// Does something and waits for the answer. Nil is success.
    func perform(_ command: BluetoothCommand) async -> BluetoothFailure?
}
