// The machine's own devices as this module sees them: tagged input devices and serial ports, and the media player's keys.
import MonotonicTime

/// A local device: its node ("/dev/input/event7", "/dev/ttyUSB0"), or `mediaPlayer`.
package struct LocalDeviceID: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// What BlueZ sends to the media player that this program registers: the play and pause keys of a headset (AVRCP).
    static let mediaPlayer = LocalDeviceID("media-player")

    package var text: String

    init(_ text: String) { self.text = text }

    package var description: String { text }

    package static func < (lhs: Self, rhs: Self) -> Bool { lhs.text < rhs.text }
}

/// A local device, and what its udev rule says about it.
package struct LocalDeviceFacts: Equatable, Sendable {
    package var id: LocalDeviceID
    /// The kernel's name for it.
    package var name: String
    /// The Bluetooth address that it came by; nil for wired ones.
    package var address: String?
    package var device: InputDeviceID?
    /// The name of the accessory that the rule gives it (`PTTD_ACCESSORY`).
    package var accessoryName: String?
    /// The profile that the rule names (`PTTD_PROFILE`).
    package var profileID: String?
    /// udev's properties of it, those that profiles may ask for.
    package var properties: [String: String]
    /// The keys that it has (KEY_* of <linux/input-event-codes.h>); empty for a serial port.
    package var keys: Set<UInt16>
    /// It tells bytes, not keys.
    package var isSerialPort: Bool
}

/// What the local devices tell, on the loop, in order.
package enum LocalDeviceReport: Sendable {
    /// It is there and is read.
    case added(LocalDeviceFacts)
    /// A key went down or came up, when the kernel saw it.
    case key(LocalDeviceID, code: UInt16, isDown: Bool, at: Instant)
    /// Bytes of a serial port.
    case bytes(LocalDeviceID, [UInt8], at: Instant)
    /// It is gone; its held keys have come up before.
    case removed(LocalDeviceID)
    /// A tagged device cannot be used, and what to do; nil when it can again.
    case problem(LocalDeviceID, String?)

    /// When it came, where that has to be exact.
    var time: Instant? {
        switch self {
        case .key(_, _, _, let time), .bytes(_, _, let time): time
        case .added, .removed, .problem: nil
        }
    }
}

/// The machine's own devices; tests put others in their place.
protocol InputHost: Actor {
    /// Reports what is there, and then every change. What keeps it from working is reported, not thrown.
    func start(_ handler: @escaping @Sendable (LocalDeviceReport) -> Void) async
    /// Reports no more, and closes everything.
    func stop() async
}
