// An image of a channel or a participant, as a value. Its format is checked, but it is not decoded.

/// A picture for the user interface: PNG or JPEG data, or the name of an icon in the user's theme.
public struct PTImage: Hashable, Sendable {
    /// What the picture is made of.
    public enum Content: Hashable, Sendable {
        /// A PNG file.
        case png([UInt8])
        /// A JPEG file.
        case jpeg([UInt8])
        /// An icon of the current theme, by name (freedesktop.org Icon Naming Specification).
        case themedIcon(String)
    }

    /// Why bytes or a name do not make a picture.
    public enum Invalid: Error, Hashable, Sendable {
        /// The data begins like neither a PNG nor a JPEG file.
        case unknownFormat
        /// The data has more than `PTImage.byteCountMax` bytes.
        case tooLarge(byteCount: Int)
        /// The name is empty, too long, or has characters other than ASCII letters, digits, `-`, `_`, `.` and `+`.
        case malformedIconName
    }

    /// The most bytes of picture data that are kept; pictures travel over D-Bus and into notifications.
    public static let byteCountMax = 1 << 20
    /// The longest icon name, in bytes.
    public static let iconNameByteCountMax = 128

    private static let pngSignature: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]
    private static let jpegSignature: [UInt8] = [0xFF, 0xD8, 0xFF]

    /// What the picture is made of.
    public let content: Content

    /// The picture in the PNG or JPEG file with these bytes.
    public init(validating bytes: some Collection<UInt8>) throws(Invalid) {
        guard bytes.count <= Self.byteCountMax else { throw .tooLarge(byteCount: bytes.count) }
        if bytes.starts(with: Self.pngSignature) {
            content = .png(Array(bytes))
        } else if bytes.starts(with: Self.jpegSignature) {
            content = .jpeg(Array(bytes))
        } else {
            throw .unknownFormat
        }
    }

    /// The icon `name` of whatever theme the user has.
    public init(validatingIconName name: String) throws(Invalid) {
        let bytes = name.utf8
        guard (1...Self.iconNameByteCountMax).contains(bytes.count), bytes.allSatisfy(Self.isIconNameByte),
            bytes.first != UInt8(ascii: ".")
        else { throw .malformedIconName }
        content = .themedIcon(name)
    }

    /// The picture in the PNG or JPEG file with these bytes; nil for anything else, and for more than `byteCountMax`.
    public init?(data bytes: some Collection<UInt8>) {
        guard let image = try? PTImage(validating: bytes) else { return nil }
        self = image
    }

    /// The icon `name` of whatever theme the user has; nil when no icon can have that name.
    public init?(named name: String) {
        guard let image = try? PTImage(validatingIconName: name) else { return nil }
        self = image
    }

    // No slash: the name must not become a path in a program that looks the icon up.
    private static func isIconNameByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."),
            UInt8(ascii: "+"):
            true
        default: false
        }
    }
}

extension PTImage.Invalid: CustomStringConvertible {
    /// What is wrong and what would be right.
    public var description: String {
        switch self {
        case .unknownFormat: "the image is neither PNG nor JPEG"
        case .tooLarge(let byteCount): "the image has \(byteCount) bytes; at most \(PTImage.byteCountMax) are accepted"
        case .malformedIconName:
            "an icon name has 1 to \(PTImage.iconNameByteCountMax) of the characters A-Z a-z 0-9 - _ . +"
        }
    }
}
