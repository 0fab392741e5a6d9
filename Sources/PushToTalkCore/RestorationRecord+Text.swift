// The text form of a restoration record: a line with the version, a line for each value, and a line with a checksum.

import FoundationEssentials
import Vocabulary

extension RestorationRecord {
    /// Why a text is not a valid restoration record.
    public enum Invalid: Error, Hashable, Sendable {
        /// It does not begin as one, for example because it is empty.
        case notARecord
        /// It was written by another version of pttd.
        case otherVersion(String)
        /// It is longer than `byteCountMax`.
        case tooLarge
        /// It ends early, or bytes of it were changed.
        case damaged
        /// The value of this key is missing or cannot be.
        case malformed(key: String)
    }

    private enum Key: String, CaseIterable {
        case channel, name, image, mode, accessories, media, application, invitation, token
    }

    private static let heading = "pttd-channel "
    private static let ending = "end "

    /// The text form.
    public var text: String {
        var text = "\(Self.heading)\(Self.version)\n"
        for key in Key.allCases {
            guard let value = value(of: key) else { continue }
            text += "\(key.rawValue) \(value)\n"
        }
        return text + "\(Self.ending)\(Self.checksum(of: text.utf8))\n"
    }

    /// Reads the text form.
    ///
    /// - Throws: `Invalid`, which says what to do in its description.
    public init(text bytes: some Collection<UInt8>) throws(Invalid) {
        guard bytes.count <= Self.byteCountMax else { throw .tooLarge }
        guard let text = String(validating: bytes, as: UTF8.self), text.utf8.starts(with: Self.heading.utf8) else {
            throw .notARecord
        }
        // By bytes: a name may hold characters that Swift takes for newlines, or that join with a newline.
        var lines = text.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        let version = String(lines[0].dropFirst(Self.heading.utf8.count)) ?? ""
        guard lines.count > 1 else { throw .damaged }
        guard version == "\(Self.version)" else { throw .otherVersion(String(version.prefix(16))) }
        // After the last newline comes nothing, and before it the checksum.
        guard lines.removeLast().isEmpty, let end = lines.popLast(), end.starts(with: Self.ending.utf8) else {
            throw .damaged
        }
        let checksum = String(end.dropFirst(Self.ending.utf8.count)) ?? ""
        guard checksum == Self.checksum(of: text.utf8[..<end.startIndex]) else { throw .damaged }
        var values: [Key: String] = [:]
        for line in lines.dropFirst() {
            let parts = line.split(separator: UInt8(ascii: " "), maxSplits: 1, omittingEmptySubsequences: false)
            let name = String(parts[0]) ?? ""
            guard let key = Key(rawValue: name), values[key] == nil, parts.count == 2 else {
                throw .malformed(key: String(name.prefix(32)))
            }
            values[key] = String(parts[1])
        }
        try self.init(values)
    }

    private init(_ values: [Key: String]) throws(Invalid) {
        func value<T>(_ key: Key, _ read: (String) -> T?) throws(Invalid) -> T {
            guard let value = values[key].flatMap(read) else { throw .malformed(key: key.rawValue) }
            return value
        }
        func optional<T>(_ key: Key, _ read: (String) -> T?) throws(Invalid) -> T? {
            values[key] == nil ? nil : try value(key, read)
        }
        channelUUID = try value(.channel) { UUID(uuidString: $0) }
        descriptor = PTChannelDescriptor(
            name: try value(.name, Self.unescape), image: try optional(.image, Self.image))
        mode = try value(.mode) { name in PTTransmissionMode.allCases.first { "\($0)" == name } }
        accessoryButtonEventsEnabled = try value(.accessories) { ["on": true, "off": false][$0] }
        media = try value(.media) { MediaOwner(rawValue: $0) }
        application = try optional(.application, Self.unescape) ?? ""
        invitation = try optional(.invitation, Self.unescape)
        token = try optional(.token) { PushToken(hexadecimal: $0) }
    }

    private func value(of key: Key) -> String? {
        switch key {
        case .channel: channelUUID.uuidString
        case .name: Self.escape(descriptor.name)
        case .image: descriptor.image.map(Self.text)
        case .mode: "\(mode)"
        case .accessories: accessoryButtonEventsEnabled ? "on" : "off"
        case .media: media.rawValue
        case .application: application.isEmpty ? nil : Self.escape(application)
        case .invitation: invitation.map(Self.escape)
        case .token: token?.hexadecimal
        }
    }

    // MARK: Values

    private static func text(of image: PTImage) -> String {
        switch image.content {
        case .png(let bytes), .jpeg(let bytes): "data \(Data(bytes).base64EncodedString())"
        case .themedIcon(let name): "icon \(name)"
        }
    }

    private static func image(_ text: String) -> PTImage? {
        if text.hasPrefix("icon ") { return PTImage(named: String(text.dropFirst(5))) }
        guard text.hasPrefix("data "), let data = Data(base64Encoded: String(text.dropFirst(5))) else { return nil }
        return PTImage(data: data)
    }

    /// A text on one line: a backslash as `\\`, a newline as `\n`.
    private static func escape(_ text: String) -> String {
        String(
            decoding: text.utf8.flatMap { byte -> [UInt8] in
                switch byte {
                case UInt8(ascii: "\\"): Array("\\\\".utf8)
                case UInt8(ascii: "\n"): Array("\\n".utf8)
                default: [byte]
                }
            }, as: UTF8.self)
    }

    private static func unescape(_ text: String) -> String? {
        var bytes: [UInt8] = []
        var isEscaped = false
        for byte in text.utf8 {
            switch (isEscaped, byte) {
            case (false, UInt8(ascii: "\\")): isEscaped = true
            case (false, _): bytes.append(byte)
            case (true, UInt8(ascii: "\\")), (true, UInt8(ascii: "n")):
                bytes.append(byte == UInt8(ascii: "n") ? UInt8(ascii: "\n") : byte)
                isEscaped = false
            case (true, _): return nil
            }
        }
        return isEscaped ? nil : String(decoding: bytes, as: UTF8.self)
    }

    /// FNV-1a, 64 bits (draft-eastlake-fnv): it finds damage; it keeps no one out.
    private static func checksum(of bytes: some Sequence<UInt8>) -> String {
        var hash: UInt64 = 0xCBF2_9CE4_8422_2325
        for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01B3 }
        return String(hash, radix: 16)
    }
}

extension RestorationRecord.Invalid: CustomStringConvertible {
    /// What is wrong.
    public var description: String {
        switch self {
        case .notARecord: "it is not a channel that pttd saved"
        case .otherVersion(let version):
            "it is of version \"\(version)\", and this pttd reads version \(RestorationRecord.version)"
        case .tooLarge: "it has more than \(RestorationRecord.byteCountMax) bytes"
        case .damaged: "it ends early or was changed"
        case .malformed(let key): "its value \"\(key)\" is missing or not one that pttd writes"
        }
    }
}
