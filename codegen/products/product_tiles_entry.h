// ProductTiles' functions, after their implementations and a ForShape.
#pragma once

void Pack(const Product& product, int64_t first, int64_t count, int64_t vectors, float* panel) {
  ForShape(vectors, [&](auto shape) { PackPanel<shape.kVectors>(product, first, count, panel); });
}

void Panel(const Product& product, int64_t first, int64_t count, int64_t vectors, const float* panel, int64_t begin, int64_t end,
           float* scratch) {
  ForShape(vectors, [&](auto shape) { PanelBlock<shape.kRows, shape.kVectors>(product, first, count, panel, begin, end, scratch); });
}

void Columns(const Product& product, int64_t first, int64_t end, int64_t vectors, const float* panel, int64_t begin, int64_t count) {
  ForShape(vectors, [&](auto shape) { ColumnsBlock<shape.kRows, shape.kVectors>(product, first, end, panel, begin, count); });
}

void Attend(const AttentionBlock& block, int64_t vectors, float* scratch, float* stats) {
  ForShape(vectors, [&](auto shape) { AttendBlock<shape.kRows, shape.kVectors>(block, scratch, stats); });
}

void AttendBack(const AttentionGradBlock& block, int64_t vectors, float* scratch) {
  ForShape(vectors, [&](auto shape) { AttendBlockBack<shape.kRows, shape.kVectors>(block, scratch); });
}
