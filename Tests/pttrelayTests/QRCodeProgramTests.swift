// The QR code of an invitation, as a terminal shows it, read by a decoder that is not ours (zbar).
import Glibc
import RelayProtocol
import Testing

@Suite struct QRCodeProgramTests {
    @Test(.timeLimit(.minutes(1)), arguments: [[], ["--end-to-end"]])
    func `a decoder reads the link from what the terminal shows`(options: [String]) async throws {
        let program = try RunningProgram()
        let channel = options.isEmpty ? "Team" : "Sealed"
        let invitation = try await program.command(["invite", channel, "--qr"] + options)
        #expect(invitation.status == 0, "\(invitation.errors)")
        let shown = invitation.output + invitation.errors
        let link = try #require(shown.split(separator: "\n").first { $0.hasPrefix("ptt://") })
        #expect(try InvitationLink(link).mediaKey != nil || options.isEmpty)
        let rows = shown.split(separator: "\n").filter { $0.contains("\u{1B}[97;40m") }
            .map { row in Array(row.filter { " ▀▄█".contains($0) }) }
        #expect(try read(rows) == String(link))
    }

    /// What the decoder says of half blocks: six pixels a module, light ones white.
    private func read(_ rows: [[Character]]) throws -> String {
        let scale = 6
        let width = try #require(rows.first?.count) * scale
        var pixels: [UInt8] = []
        for row in rows {
            for half in ["▀█", "▄█"] {
                let line = row.flatMap { Array(repeating: half.contains($0) ? UInt8(255) : 0, count: scale) }
                for _ in 0..<scale { pixels += line }
            }
        }
        var path = Array("/tmp/pttrelay-qr-XXXXXX.pgm".utf8CString)
        let file = mkstemps(&path, 4)
        try #require(file >= 0)
        let name = String(decoding: path.prefix { $0 != 0 }.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
        defer { unlink(name) }
        let image = Array("P5 \(width) \(pixels.count / width) 255\n".utf8) + pixels
        #expect(image.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) } == image.count)
        close(file)
        let decoder = try #require(popen("zbarimg --raw -q '\(name)'", "r"))
        var line = [CChar](repeating: 0, count: 2_048)
        let isRead = fgets(&line, Int32(line.count), decoder) != nil
        #expect(pclose(decoder) == 0 && isRead, "zbarimg (package zbar-tools) reads nothing")
        return String(decoding: line.prefix { $0 > 10 }.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }
}
