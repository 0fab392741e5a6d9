// The fallback icon: a coloured sign, for themes that lack an icon's name. Pure.
import DBus

/// Disc, rings, half a ring, two halves of one, a barred ring: one per activity, drawn here, so that the tray icon is never a blank place.
enum ActivityBadge {
    /// Width and height in pixels; hosts scale.
    static let side = 48
    /// `(iiay)`: width, height, ARGB32 in network byte order (StatusNotifierItem specification, "Icons").
    static let pixelsType = DBusType.structure([.int32, .int32, .array(.byte)])

    /// The sign for `activity`, as the `a(iiay)` of an icon property.
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
                let distance = (dx * dx + dy * dy).squareRoot()
                // One pixel of an edge fades out, so that it looks round.
                var coverage = min(fade(radius - distance), fade(distance - hole(of: activity) * radius))
                switch activity {
                case .connecting: coverage = min(coverage, fade(-dx))
                case .unavailable: coverage = max(coverage, min(fade(3 - abs(dy)), fade(radius - distance)))
                case .away: coverage = min(coverage, fade(abs(dx) - 4))
                case .idle, .transmitting, .receiving: break
                }
                return [UInt8(coverage * 255), red, green, blue]
            }
        }
    }

    private static func fade(_ inside: Double) -> Double { min(max(inside + 0.5, 0), 1) }

    /// The hole in the disc, as a share of its radius: not everybody can distinguish red from green.
    private static func hole(of activity: Activity) -> Double {
        switch activity {
        case .transmitting: -1
        case .receiving: 0.35
        case .away, .idle, .connecting, .unavailable: 0.7
        }
    }

    private static func color(of activity: Activity) -> (red: UInt8, green: UInt8, blue: UInt8) {
        switch activity {
        case .away, .unavailable: (0x7A, 0x7A, 0x7A)
        case .idle: (0x5B, 0x7F, 0xA6)
        case .transmitting: (0xD9, 0x2B, 0x2B)
        case .receiving: (0x2E, 0x9E, 0x4F)
        case .connecting: (0xE0, 0x9A, 0x1F)
        }
    }
}
