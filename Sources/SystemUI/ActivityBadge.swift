// The icon of last resort: a coloured disc, for themes that lack an icon's name. Pure.
import DBus

/// A disc per activity, drawn here, so that the tray icon is never a blank place.
enum ActivityBadge {
    /// Width and height in pixels; hosts scale.
    static let side = 48
    /// `(iiay)`: width, height, ARGB32 in network byte order (StatusNotifierItem specification, "Icons").
    static let pixelsType = DBusType.structure([.int32, .int32, .array(.byte)])

    /// The disc for `activity`, as the `a(iiay)` of an icon property.
    static func pixmap(of activity: Activity) -> DBusValue {
        let size = DBusValue.int32(Int32(side))
        return .array(pixelsType, [.structure([size, size, .bytes(pixels(of: activity))])])
    }

    /// Alpha, red, green and blue of each pixel, row by row.
    static func pixels(of activity: Activity) -> [UInt8] {
        let (red, green, blue) = color(of: activity)
        let centre = Double(side) / 2
        let radius = centre - 4
        return (0..<side).flatMap { y in
            (0..<side).flatMap { x -> [UInt8] in
                let (dx, dy) = (Double(x) + 0.5 - centre, Double(y) + 0.5 - centre)
                // One pixel of the edge fades out, so that the disc looks round.
                let coverage = min(max(radius + 0.5 - (dx * dx + dy * dy).squareRoot(), 0), 1)
                return [UInt8(coverage * 255), red, green, blue]
            }
        }
    }

    private static func color(of activity: Activity) -> (red: UInt8, green: UInt8, blue: UInt8) {
        switch activity {
        case .idle: (0x5B, 0x7F, 0xA6)
        case .transmitting: (0xD9, 0x2B, 0x2B)
        case .receiving: (0x2E, 0x9E, 0x4F)
        case .connecting: (0xE0, 0x9A, 0x1F)
        case .unavailable: (0x7A, 0x7A, 0x7A)
        }
    }
}
