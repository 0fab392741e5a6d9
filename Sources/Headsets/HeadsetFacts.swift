// Headsets as a sound service shows them.

/// Who offers a headset's sound.
package enum SoundService: Hashable, Sendable, CaseIterable {
    /// PulseAudio, or PipeWire in its place.
    case soundServer
    /// BlueALSA.
    case blueALSA
}

/// A Bluetooth device with sound, as one service shows it at one moment.
package struct HeadsetFacts: Hashable, Sendable {
    /// A way in which a sound server can use the device.
    package struct Profile: Hashable, Sendable {
        /// The server's name for it.
        package var name: String
        /// It has a microphone and a speaker.
        package var isHandsFree: Bool
        /// The server prefers the profile with the higher number.
        package var priority: UInt32
    }

    /// A sound server's object for the device, with profiles of which one is active.
    package struct Card: Hashable, Sendable {
        package var index: UInt32
        /// Profiles that can be used now.
        package var profiles: [Profile]
        package var activeProfile: String?
    }

    /// The Bluetooth address, in capitals.
    package var address: String
    /// ALSA's name for the microphone; nil while there is none.
    package var microphone: String?
    /// ALSA's name for the speaker; nil while there is none.
    package var speaker: String?
    /// Nil where profiles need no switching.
    package var card: Card?

    /// The hands-free profile that the server prefers; nil when the device cannot be switched to one.
    var handsFreeProfile: Profile? {
        card?.profiles.filter(\.isHandsFree).max { ($0.priority, $1.name) < ($1.priority, $0.name) }
    }
}

/// An accessory whose device may have a microphone and a speaker.
public struct WornAccessory: Hashable, Sendable {
    /// The accessory's name in the configuration.
    public var id: String
    /// The address of its sound, in capitals: mostly the accessory's own.
    public var address: String
    /// Its Bluetooth services, or the configuration, say that it has sound.
    public var hasSound: Bool

    /// An accessory and its sound's address.
    public init(id: String, address: String, hasSound: Bool) {
        self.id = id
        self.address = address.uppercased()
        self.hasSound = hasSound
    }
}

/// A Bluetooth address in the names and properties of sound services.
enum HeadsetAddress {
    /// The address within `text`, with colons and in capitals. `text` may have underscores, and other parts around it.
    static func find(in text: some StringProtocol) -> String? {
        let bytes = Array(text.utf8.prefix(512))
        guard bytes.count >= 17 else { return nil }
        for start in 0...(bytes.count - 17) where isAddress(bytes[start..<(start + 17)]) {
            // Part of a longer run of digits it is something else.
            if start > 0, isHex(bytes[start - 1]) { continue }
            if start + 17 < bytes.count, isHex(bytes[start + 17]) { continue }
            let address = bytes[start..<(start + 17)].map { $0 == UInt8(ascii: "_") ? UInt8(ascii: ":") : $0 }
            return String(decoding: address, as: UTF8.self).uppercased()
        }
        return nil
    }

    private static func isAddress(_ bytes: ArraySlice<UInt8>) -> Bool {
        let separator = bytes[bytes.startIndex + 2]
        guard separator == UInt8(ascii: ":") || separator == UInt8(ascii: "_") else { return false }
        return bytes.enumerated().allSatisfy { $0.offset % 3 == 2 ? $0.element == separator : isHex($0.element) }
    }

    private static func isHex(_ byte: UInt8) -> Bool { Character(Unicode.Scalar(byte)).isHexDigit }
}
